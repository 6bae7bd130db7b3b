# frozen_string_literal: true

require "json"
require "socket"

module Fairlead
  # The Unix socket through which other commands of the same user ask a running server. They find it without configuration, see
  # {SocketNamespace}.
  class ControlSocket
    # Seconds that a server may take to answer.
    PATIENCE = 2
    NAMESPACE = Platform::LINUX ? SocketNamespace::Abstract.new : SocketNamespace::Folder.new
    # Seconds for which no client is accepted after the process had no descriptor left for one.
    PAUSE = 1.0
    private_constant :NAMESPACE, :PAUSE

    class << self
      # @return [Array<Hash>] the answer of each server of this user (for root: of all users); `{ silent: true }` for a server that
      #   does not answer in time.
      def servers(namespace = NAMESPACE, patience: PATIENCE)
        namespace.addresses.filter_map { |address| ask(address, namespace, patience) }
      rescue SystemCallError
        []
      end

      # @return [String, nil] where a socket may be opened; nil where the system allows none.
      def new_address
        NAMESPACE.new_address
      rescue SystemCallError
        nil
      end

      # @return [ControlSocket, nil] nil where the system allows no such socket: the server then cannot be asked.
      def open(...)
        new(...)
      rescue SystemCallError
        nil
      end

      # @return [Hash, nil] the answer of the server at an address, see {.servers}; nil: there is none.
      def ask(address, namespace = NAMESPACE, patience = PATIENCE)
        socket = Socket.new(:UNIX, :STREAM)
        socket.connect(Socket.sockaddr_un(address))
        user = socket.getpeereid.first
        return unless [user, 0].include?(Process.euid) # any user may take such a name
        return { silent: true } unless socket.wait_readable(patience)

        answer = JSON.parse(read(socket, patience), symbolize_names: true)
        answer[:elsewhere] = true if elsewhere?(socket, answer)
        answer if answer[:elsewhere] || own?(answer, user)
      rescue Errno::ECONNREFUSED
        namespace.remove(address) # its server was killed
        nil
      rescue SystemCallError, JSON::ParserError
        nil
      ensure
        socket&.close
      end

      private

      # Whether the server is a process of the user who answers: another one would have root signal it.
      def own?(answer, user) = user == Process.euid || ProcessUsage.user(answer[:pid]) == user

      # Whether the answer's process ids are those of another namespace. The kernel reports the id that is valid here.
      def elsewhere?(socket, answer)
        return false unless Platform::LINUX && answer[:supervisor]

        socket.getsockopt(:SOCKET, :PEERCRED).data.unpack1("i") != answer[:supervisor]
      end

      # Reads to the end, or until nothing arrives within the patience.
      def read(socket, patience)
        text = +""
        text << socket.readpartial(65_536) while socket.wait_readable(patience)
        text
      rescue EOFError
        text
      end
    end

    # @param address [String] a new one.
    # @yieldreturn [Hash] the answer
    def initialize(namespace = NAMESPACE, address: namespace.new_address, &answer)
      @namespace = namespace
      @answer = answer
      @address = address
      @io = Socket.new(:UNIX, :STREAM)
      @io.bind(Socket.sockaddr_un(@address))
      @io.listen(8)
      @spare = File.open(File::NULL)
      @owner = Process.pid
    end

    # @return [Array<IO>] readable when a client connects.
    def ios = @paused_until && Clock.now < @paused_until ? [] : [@io]

    # Answers the clients that are connected by now. Never waits.
    #
    # @yield after each answer.
    def answer_clients
      loop do
        client, = accept
        break unless client.is_a?(Socket)

        answer(client)
        yield if block_given?
      end
    rescue SystemCallError
      @paused_until = Clock.now + PAUSE # the client is still in the backlog, and would wake this process again and again
    end

    def close
      [@io, @spare].compact.each(&:close)
      @namespace.remove(@address) if @owner == Process.pid # not in a fork
    end

    private

    # Without descriptors left, the process gives up the spare one to accept the client.
    def accept
      @spare ||= File.open(File::NULL)
      @io.accept_nonblock(exception: false)
    rescue Errno::EMFILE, Errno::ENFILE
      raise unless @spare

      @spare.close
      @spare = nil
      @io.accept_nonblock(exception: false)
    end

    # All users of the machine can see the name, but only this user and root get the answer. The kernel's buffer mostly takes it whole.
    def answer(client)
      user, = client.getpeereid
      return client.close unless [0, Process.euid].include?(user)

      text = Messages.json(@answer.call)
      client.setsockopt(:SOCKET, :SNDBUF, text.bytesize + 4096)
      taken = client.write_nonblock(text)
      return client.close if taken == text.bytesize

      Thread.new { write_rest(client, text.byteslice(taken..)) }
    rescue IO::WaitWritable, SystemCallError
      client.close
    rescue StandardError, LoadError => error # a failed answer must not end the server
      client.close
      Log.say "A `fairlead` command could not be answered: #{error.full_message(highlight: false)}"
    end

    def write_rest(client, text)
      client.timeout = PATIENCE
      client.write(text)
    rescue IOError, SystemCallError
      nil # the client does not read
    ensure
      client.close
    end
  end
end
