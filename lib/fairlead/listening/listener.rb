# frozen_string_literal: true

require "io/nonblock"
require "socket"

module Fairlead
  # A socket that listens on one address: bound by the supervisor, shared by its workers.
  class Listener
    autoload :Address, "fairlead/listening/address"
    autoload :BindError, "fairlead/listening/bind_error"
    autoload :InheritedSockets, "fairlead/listening/inherited_sockets"

    EVERYWHERE = ["0.0.0.0", "::"].freeze
    private_constant :EVERYWHERE

    class << self
      # @param uri [String] "http://host:port", "https://[::1]:port", "unix:/path[?mode=0660]" or "unix:@name". Port 0
      #   takes a free one.
      # @param asked [String] the address in the configuration, by which a newer generation finds it.
      # @raise [ConfigurationError] if the address is malformed, or cannot be bound.
      def open(uri, backlog: 4096, asked: uri)
        address = Address.parse(uri)
        address.path ? open_unix(address, backlog) : open_tcp(address, backlog, asked)
      end

      # Opens all addresses, or none. `localhost` is both 127.0.0.1 and ::1, where the machine has it.
      #
      # @raise [ConfigurationError]
      def open_all(uris, backlog: 4096)
        listeners = []
        # The same address twice is one socket, but each :0 is a free port of its own.
        uris.uniq { |uri| uri.match?(/:0(?:\?|\z)/) ? Object.new : uri }.each do |uri|
          address = Address.parse(uri)
          next listeners << open(uri, backlog:) unless address.host == "localhost"

          listeners << (first = open("#{address.scheme}://127.0.0.1:#{address.port}", backlog:, asked: uri))
          second = open_second_localhost(first, backlog, uri) and listeners << second
        end
        listeners
      rescue ConfigurationError
        listeners.each(&:close)
        raise
      end

      private

      def open_tcp(address, backlog, asked)
        info = Addrinfo.tcp(address.host, address.port)
        socket = Socket.new(info.afamily, Socket::SOCK_STREAM, 0)
        socket.setsockopt(:SOCKET, :REUSEADDR, true)
        # [::] serves IPv4 too, whatever the machine's default.
        socket.setsockopt(:IPV6, :V6ONLY, info.ipv6_loopback?) if info.ipv6?
        socket.bind(info)
        socket.listen(backlog)
        new(socket, asked:)
      rescue SystemCallError, SocketError => error
        socket&.close
        raise ConfigurationError, BindError.message(address, error)
      end

      def open_second_localhost(first, backlog, asked)
        open("#{first.scheme}://[::1]:#{first.port}", backlog:, asked:)
      rescue ConfigurationError
        # Without IPv6, or if another program has the port there, 127.0.0.1 has to do.
        nil
      end

      def open_unix(address, backlog)
        remove_stale(address) unless address.abstract?
        socket = Socket.new(:UNIX, :STREAM, 0)
        socket.bind(address.unix)
        File.chmod(address.mode, address.path) if address.mode
        socket.listen(backlog)
        new(socket, asked: address.text, owned: (File.stat(address.path).ino unless address.abstract?))
      rescue SystemCallError, ArgumentError => error
        socket&.close
        raise ConfigurationError, BindError.message(address, error)
      end

      # The socket file of a server that was killed is removed, if nothing answers there.
      def remove_stale(address)
        path = address.path
        return unless File.exist?(path)

        unless File.socket?(path)
          raise ConfigurationError,
                "#{address}: #{path} exists and is no socket. Remove it, or bind another path."
        end

        Socket.unix(path).close
        raise ConfigurationError,
              "#{address} is taken: another server answers there. Stop it, or bind another path."
      rescue Errno::ECONNREFUSED
        File.unlink(path)
      rescue Errno::ENOENT
        nil
      end
    end

    # @return [Socket] non-blocking, closed on exec.
    attr_reader :io
    # @return [String] the real address: "http://127.0.0.1:9292", "unix:/run/app.sock", "unix:@app".
    attr_reader :uri
    # @return [String] "http" or "https".
    attr_reader :scheme
    # @return [Certificates, nil] of a listener with https.
    attr_accessor :certificates
    # @return [String, nil] the IP address; nil for a Unix socket.
    attr_reader :host
    # @return [Integer, nil] the port that was bound, if a free one was asked for.
    attr_reader :port
    # @return [String, nil] the path of a Unix socket, or its name with @.
    attr_reader :path
    # @return [String, nil] the address in the configuration; nil if a service manager has opened it.
    attr_reader :asked
    # @return [Boolean] whether connections begin with a PROXY header, as the address in the configuration says.
    attr_reader :proxied
    alias proxied? proxied
    # @return [Integer, nil] the inode of its socket file, if the server has to remove that.
    attr_reader :owned
    attr_writer :owner

    def initialize(io, asked: nil, owned: nil, owner: Process.pid)
      @io = io
      @asked = asked
      @owned = owned
      @owner = owner
      io.close_on_exec = true
      io.nonblock = true
      @scheme = "http"
      @proxied = false
      take_options(asked ? Address.parse(asked) : self)
    end

    def unix? = !path.nil?

    def https? = scheme == "https"

    def closed? = io.closed?

    # Gets the options of this address in the configuration, which is its own. A service manager's socket stays one.
    #
    # @raise [ConfigurationError]
    def adopt(uri)
      take_options(Address.parse(uri))
      @asked &&= uri
    end

    # @return [Boolean] whether the configuration named this place, with these or other options.
    def asked?(uri)
      return false if asked.nil?

      place = Address.parse(asked).place
      uri == asked || (place.last != 0 && place == Address.parse(uri).place)
    end

    # @param uri [String] an address in a configuration. All ways to write "all interfaces" are one address: no second socket could
    #   be bound there.
    def is?(uri)
      return true if asked?(uri)

      address = Address.parse(uri)
      return address.path == path if unix? || address.path

      address.port == port && (address.host == host || (EVERYWHERE.include?(address.host) && EVERYWHERE.include?(host)))
    end

    # A copy that removes the file of the socket in place of this one.
    def successor
      @owner = nil
      Listener.new(io.dup, asked:, owned:).tap { |copy| copy.take_options(self) }
    end

    # Closes it in this process. Its owner also removes the file of a Unix socket.
    def close
      return if io.closed?

      io.close
      File.unlink(path) if @owned && @owner == Process.pid && File.stat(path).ino == @owned
    rescue Errno::ENOENT
      nil
    end

    def to_s = uri

    protected

    # @param other [Address, Listener]
    def take_options(other)
      @scheme = other.scheme
      @proxied = other.proxied?
      read_address(io.local_address)
    end

    private

    def read_address(address)
      if address.unix?
        @path = address.unix_path.sub(/\A\0/, "@")
        @uri = "unix:#{path}"
      else
        @host = address.ip_address
        @port = address.ip_port
        @uri = "#{scheme}://#{address.ipv6? ? "[#{host}]" : host}:#{port}"
      end
    end
  end
end
