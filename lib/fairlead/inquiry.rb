# frozen_string_literal: true

require "json"
require "socket"
require_relative "parts"

module Fairlead
  # Defined before its parts open it: else they would have it loaded again.
  class Inquiry; end
end

require_relative "inquiry/places"

module Fairlead
  # How another command of the same user asks a running server: over a Unix socket that is found without being
  # configured.
  class Inquiry
    autoload :Command, "fairlead/inquiry/command"

    # Seconds that a server may take to answer.
    PATIENCE = 2
    # Where the sockets are.
    PLACE = Platform::LINUX ? AbstractNames.new : Folder.new
    private_constant :PATIENCE, :PLACE

    # @return [Array<Hash>] what each server of this user, or of all for root, says of itself.
    def self.servers(place = PLACE)
      place.addresses.filter_map { |address| ask(address, place) }
    rescue SystemCallError
      []
    end

    # @param servers [Array<Hash>]
    # @param pid [Integer, nil] of the one that is meant; nil: that of this folder, or the only one.
    # @return [Hash]
    # @raise [ConfigurationError]
    def self.choose(servers, pid: nil)
      here = servers.select { |server| server[:folder] == Dir.pwd }
      found = if pid then servers.select { |server| server[:pid] == pid }
              else here.empty? ? servers : here
              end
      # After a hot restart, the older supervisor answers until it leaves.
      found = found.group_by { |server| server[:pid] }.map { |_, same| same.max_by { |server| server.dig(:restarts, :generation).to_i } }
      return found.first if found.size == 1
      raise ConfigurationError, "Which server? Name it by --pid:\n#{list(found)}" if found.any?

      there = servers.empty? ? "." : ". There are:\n#{list(servers)}\n"
      raise ConfigurationError, "No server of this user runs#{" as process #{pid}" if pid}#{there} " \
                                "Start one (`fairlead`, `bin/rails server`), or ask as the user who runs it."
    end

    def self.list(servers)
      servers.map { |server| "  --pid #{server[:pid]}  #{server[:folder]}  #{server[:addresses].join(" ")}" }.join("\n")
    end

    def self.ask(address, place)
      socket = Socket.new(:UNIX, :STREAM)
      socket.connect(Socket.sockaddr_un(address))
      # Anybody may take such a name.
      return unless [socket.getpeereid.first, 0].include?(Process.euid)

      JSON.parse(read(socket), symbolize_names: true)
    rescue Errno::ECONNREFUSED
      place.remove(address) # its server was killed
      nil
    rescue SystemCallError, JSON::ParserError
      nil
    ensure
      socket&.close
    end

    # All that comes until its end, or until nothing comes any more.
    def self.read(socket)
      text = +""
      text << socket.readpartial(65_536) while socket.wait_readable(PATIENCE)
      text
    rescue EOFError
      text
    end
    private_class_method :list, :ask, :read

    # @return [Socket] readable when somebody asks.
    attr_reader :io

    # @yieldreturn [Hash] the answer
    def initialize(place = PLACE, &answer)
      @place = place
      @answer = answer
      @address = place.new_address
      @io = Socket.new(:UNIX, :STREAM)
      @io.bind(Socket.sockaddr_un(@address))
      @io.listen(8)
      @owner = Process.pid
    end

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
        client, = @io.accept_nonblock(exception: false)
        break unless client.is_a?(Socket)

        answer(client)
        yield if block_given?
      end
    rescue SystemCallError
      nil
    end

    def close
      @io.close
      @place.remove(@address) if @owner == Process.pid # a worker closes what it has inherited, no more
    end

    private

    # The name is known to all who are on this machine; the answer is for this user and root. It has to fit into what the
    # kernel takes at once, some 200 KB.
    def answer(client)
      user, = client.getpeereid
      return unless [0, Process.euid].include?(user)

      text = JSON.generate(@answer.call)
      client.setsockopt(:SOCKET, :SNDBUF, text.bytesize + 4096)
      client.write_nonblock(text)
    rescue IO::WaitWritable, SystemCallError
      nil
    ensure
      client.close
    end
  end
end
