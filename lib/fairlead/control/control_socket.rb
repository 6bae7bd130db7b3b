# frozen_string_literal: true

require "json"
require "socket"
require_relative "../parts"

module Fairlead
  # Defined before its parts open it: else they would have it loaded again.
  class Inquiry; end
end

require_relative "socket_namespace"

module Fairlead
  # How another command of the same user asks a running server: over a Unix socket that is found without being
  # configured.
  class Inquiry
    autoload :Choice, "fairlead/control/server_selection"
    autoload :Command, "fairlead/cli/command"

    # Seconds that a server may take to answer.
    PATIENCE = 2
    # Where the sockets are.
    PLACE = Platform::LINUX ? AbstractNames.new : Folder.new
    # Seconds until it is looked again who asks, where the process has no descriptor left to answer with.
    PAUSE = 1.0
    private_constant :PATIENCE, :PLACE, :PAUSE

    # @return [Array<Hash>] what each server of this user, or of all for root, says of itself; `{ silent: true }` of one that
    #   is there and does not answer in time.
    def self.servers(place = PLACE, patience: PATIENCE)
      place.addresses.filter_map { |address| ask(address, place, patience) }
    rescue SystemCallError
      []
    end

    # @param servers [Array<Hash>]
    # @param which [Hash] see {Choice#initialize}.
    # @return [Hash] the one that is meant.
    # @raise [ConfigurationError] if none is, or not one alone.
    def self.choose(servers, **which) = Choice.new(servers, **which).server

    # @return [Boolean] whether it runs in this folder, or was started in it by a name that leads here by now.
    def self.here?(server) = server.values_at(:folder, :named).compact.any? { |folder| File.identical?(folder, ".") }

    def self.ask(address, place, patience)
      socket = Socket.new(:UNIX, :STREAM)
      socket.connect(Socket.sockaddr_un(address))
      # Anybody may take such a name.
      return unless [socket.getpeereid.first, 0].include?(Process.euid)

      return { silent: true } unless socket.wait_readable(patience)

      JSON.parse(read(socket, patience), symbolize_names: true).tap { |answer| answer[:elsewhere] = true if elsewhere?(socket, answer) }
    rescue Errno::ECONNREFUSED
      place.remove(address) # its server was killed
      nil
    rescue SystemCallError, JSON::ParserError
      nil
    ensure
      socket&.close
    end

    # Whether the process numbers that it tells are those of another namespace: the kernel tells the number that counts here.
    def self.elsewhere?(socket, answer)
      return false unless Platform::LINUX && answer[:supervisor]

      socket.getsockopt(:SOCKET, :PEERCRED).data.unpack1("i") != answer[:supervisor]
    end

    # All that comes until its end, or until nothing comes any more.
    def self.read(socket, patience)
      text = +""
      text << socket.readpartial(65_536) while socket.wait_readable(patience)
      text
    rescue EOFError
      text
    end
    private_class_method :ask, :elsewhere?, :read

    # @yieldreturn [Hash] the answer
    def initialize(place = PLACE, &answer)
      @place = place
      @answer = answer
      @address = place.new_address
      @io = Socket.new(:UNIX, :STREAM)
      @io.bind(Socket.sockaddr_un(@address))
      @io.listen(8)
      @spare = File.open(File::NULL)
      @owner = Process.pid
    end

    # @return [Array<IO>] readable when somebody asks.
    def ios = @paused_until && now < @paused_until ? [] : [@io]

    # @return [Inquiry, nil] nil where there can be no such socket: then nobody can ask.
    def self.open(...)
      new(...)
    rescue SystemCallError
      nil
    end

    # Answers who asks now, and waits for nobody.
    #
    # @yield when somebody has been answered.
    def attend
      loop do
        client, = accept
        break unless client.is_a?(Socket)

        answer(client)
        yield if block_given?
      end
    rescue SystemCallError
      @paused_until = now + PAUSE # who asks is still there, and would be seen at once, again and again
    end

    def close
      [@io, @spare].compact.each(&:close)
      @place.remove(@address) if @owner == Process.pid # a worker closes what it has inherited, no more
    end

    private

    # A process that is at its limit of descriptors has one in reserve to answer with.
    def accept
      @spare ||= File.open(File::NULL)
      @io.accept_nonblock(exception: false)
    rescue Errno::EMFILE, Errno::ENFILE
      raise unless @spare

      @spare.close
      @spare = nil
      @io.accept_nonblock(exception: false)
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # The name is known to all who are on this machine; the answer is for this user and root. In most cases the kernel takes
    # it at once.
    def answer(client)
      user, = client.getpeereid
      return client.close unless [0, Process.euid].include?(user)

      text = Messages.json(@answer.call)
      client.setsockopt(:SOCKET, :SNDBUF, text.bytesize + 4096)
      taken = client.write_nonblock(text)
      return client.close if taken == text.bytesize

      Thread.new { send_rest(client, text.byteslice(taken..)) }
    rescue IO::WaitWritable, SystemCallError
      client.close
    rescue StandardError, LoadError => error # whatever there is to say, who serves must not end by it
      client.close
      Log.say "Somebody who asked could not be answered: #{error.full_message(highlight: false)}"
    end

    def send_rest(client, text)
      client.timeout = PATIENCE
      client.write(text)
    rescue IOError, SystemCallError
      nil # who asked does not read
    ensure
      client.close
    end
  end
end
