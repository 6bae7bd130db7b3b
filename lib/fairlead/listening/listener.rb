# frozen_string_literal: true

require "io/nonblock"
require "json"
require "socket"
require_relative "../parts"

module Fairlead
  # A socket that listens on one address: bound by the supervisor, shared by its workers.
  class Listener
    autoload :Address, "fairlead/listening/address"

    # The first descriptor that a service manager hands over (sd_listen_fds(3)).
    FIRST_INHERITED = 3
    # Those of an earlier server, with what a service manager does not say of its own.
    GIVEN = "FAIRLEAD_LISTENERS"
    EVERYWHERE = ["0.0.0.0", "::"].freeze
    private_constant :FIRST_INHERITED, :GIVEN, :EVERYWHERE

    class << self
      # @param uri [String] "http://host:port", "http://[::1]:port", "unix:/path[?mode=0660]" or "unix:@name". Port 0
      #   takes a free one.
      # @param asked [String] as what a new supervisor, after a hot restart, knows it again.
      # @return [Listener]
      # @raise [ConfigurationError] if the address is none, or is taken, or may not be used.
      def open(uri, backlog: 4096, asked: uri)
        address = Address.parse(uri)
        address.path ? open_unix(address, backlog) : open_tcp(address, backlog, asked)
      end

      # Opens all addresses, or none. `localhost` is both 127.0.0.1 and ::1, where the machine has it.
      #
      # @param uris [Array<String>]
      # @return [Array<Listener>]
      # @raise [ConfigurationError]
      def open_all(uris, backlog: 4096)
        listeners = []
        # The same address twice is once; a free port twice is two.
        uris.uniq { |uri| uri.end_with?(":0") ? Object.new : uri }.each do |uri|
          address = Address.parse(uri)
          next listeners << open(uri, backlog:) unless address.host == "localhost"

          listeners << (first = open("http://127.0.0.1:#{address.port}", backlog:, asked: uri))
          second = open_second_localhost(first.port, backlog, uri) and listeners << second
        end
        listeners
      rescue ConfigurationError
        listeners.each(&:close)
        raise
      end

      # The sockets that a service manager has opened for this process (LISTEN_FDS of them, from descriptor 3), or those
      # of an earlier server whose place it has taken. The variables are removed, so that no child takes them for its own.
      #
      # @param variables [Hash] environment variables.
      # @return [Array<Listener>]
      # @raise [ConfigurationError] if one of them is no listening socket.
      def inherited(variables = ENV)
        count, pid = %w[LISTEN_FDS LISTEN_PID].map { |name| variables.delete(name) }
        variables.delete("LISTEN_FDNAMES")
        given = variables.delete(GIVEN)
        return JSON.parse(given).map { |descriptor, asked, owned| adopt(descriptor, asked:, owned:) } if given
        return [] unless count && (pid.nil? || pid.to_i == Process.pid)

        Array.new(count.to_i) { |index| adopt(FIRST_INHERITED + index) }
      end

      # @param listeners [Array<Listener>]
      # @return [Hash{String => String}] the variables by which {inherited} finds them in a process that takes this one's place.
      def given(listeners)
        { GIVEN => Messages.json(listeners.map { |listener| [listener.io.fileno, listener.asked, listener.owned] }) }
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
        raise ConfigurationError, refusal(address, error)
      end

      def open_second_localhost(port, backlog, asked)
        open("http://[::1]:#{port}", backlog:, asked:)
      rescue ConfigurationError
        # No IPv6 on this machine, or somebody else has the port there: 127.0.0.1 it is.
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
        raise ConfigurationError, refusal(address, error)
      end

      # A socket file outlives a server that was killed. It is removed only if nobody answers there.
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

      def refusal(address, error)
        case error
        when Errno::EADDRINUSE
          if address.path
            "#{address} is taken: another server listens there. Stop it, or bind another name."
          else
            "#{address} is taken: another server listens there (`ss -ltnp \"sport = :#{address.port}\"` shows " \
            "which). Stop it, or choose another port with --port."
          end
        when Errno::EACCES, Errno::EPERM
          if address.path
            "#{address}: this user may not make a socket there. Choose a folder that it may write to."
          else
            "#{address}: this user may not listen on port #{address.port}. Choose a port of 1024 or more " \
            "with --port, or let a service manager open it (LISTEN_FDS)."
          end
        when Errno::ENOENT, Errno::ENOTDIR
          "#{address} cannot be bound: there is no folder #{File.dirname(address.path)}. Make it, or name another path."
        when Errno::EADDRNOTAVAIL
          "#{address}: no interface of this machine has the address #{address.host}. " \
          "Bind 127.0.0.1, or 0.0.0.0 for all of them."
        when SocketError
          "#{address}: the host #{address.host} is not known. Bind an address of this machine, like 127.0.0.1."
        else
          "#{address} cannot be bound: #{error.message}."
        end
      end

      def adopt(descriptor, **description)
        socket = Socket.for_fd(descriptor)
        return new(socket, **description) if socket.getsockopt(:SOCKET, :ACCEPTCONN).bool

        raise ConfigurationError, "The descriptor #{descriptor} (LISTEN_FDS) is a socket that does not " \
                                  "listen. In the socket unit, set Accept=no."
      rescue SystemCallError => error
        raise ConfigurationError, "The descriptor #{descriptor} (LISTEN_FDS) is no socket: #{error.message}."
      end
    end

    # @return [Socket] non-blocking, closed on exec.
    attr_reader :io
    # @return [String] the real address: "http://127.0.0.1:9292", "unix:/run/app.sock", "unix:@app".
    attr_reader :uri
    # @return [String] "http".
    attr_reader :scheme
    # @return [String, nil] the IP address; nil for a Unix socket.
    attr_reader :host
    # @return [Integer, nil] the port, also if a free one was asked for.
    attr_reader :port
    # @return [String, nil] the path of a Unix socket, or its name, with @, if it has no file.
    attr_reader :path
    # @return [String, nil] the address as it was asked for; nil if a service manager has opened it.
    attr_reader :asked
    # @return [Integer, nil] the inode of its socket file, if there is one to be removed in the end.
    attr_reader :owned
    # @return [Integer, nil] the process that removes it.
    attr_writer :owner

    # @param io [Socket] bound and listening.
    def initialize(io, asked: nil, owned: nil, owner: Process.pid)
      @io = io
      @asked = asked
      @owned = owned
      @owner = owner
      @scheme = "http"
      io.close_on_exec = true
      io.nonblock = true
      read_address(io.local_address)
    end

    def unix? = !path.nil?

    def closed? = io.closed?

    # @param uri [String] an address as it may be asked for. All interfaces are one address, however they are written:
    #   no second socket could be bound there.
    def is?(uri)
      return true if uri == asked

      address = Address.parse(uri)
      return address.path == path if unix? || address.path

      address.port == port && (address.host == host || (EVERYWHERE.include?(address.host) && EVERYWHERE.include?(host)))
    end

    # Another of the same socket, whose file is no longer this one's to remove.
    #
    # @return [Listener]
    def successor
      @owner = nil
      Listener.new(io.dup, asked:, owned:)
    end

    # Closes it in this process. Its maker also removes the file of a Unix socket.
    def close
      return if io.closed?

      io.close
      File.unlink(path) if @owned && @owner == Process.pid && File.stat(path).ino == @owned
    rescue Errno::ENOENT
      nil
    end

    def to_s = uri

    private

    def read_address(address)
      if address.unix?
        @path = address.unix_path.sub(/\A\0/, "@")
        @uri = "unix:#{path}"
      else
        @host = address.ip_address
        @port = address.ip_port
        @uri = "http://#{address.ipv6? ? "[#{host}]" : host}:#{port}"
      end
    end
  end
end
