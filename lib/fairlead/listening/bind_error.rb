# frozen_string_literal: true

module Fairlead
  class Listener
    # Why an address could not be bound, and what to do about it.
    module BindError
      def self.message(address, error)
        "#{address}#{address.path ? for_path(address, error) : for_port(address, error)}"
      end

      def self.for_path(address, error)
        case error
        when Errno::EADDRINUSE then " is taken: another server listens there. Stop it, or bind another name."
        when Errno::EACCES, Errno::EPERM
          ": this user may not create a socket there. Choose a folder that it may write to."
        when Errno::ENOENT, Errno::ENOTDIR
          " cannot be bound: there is no folder #{File.dirname(address.path)}. Create it, or name another path."
        else " cannot be bound: #{error.message}."
        end
      end

      def self.for_port(address, error)
        case error
        when Errno::EADDRINUSE
          " is taken: another server listens there (`ss -ltnp \"sport = :#{address.port}\"` shows which). Stop it, or choose another " \
          "port with --port."
        when Errno::EACCES, Errno::EPERM
          ": this user may not listen on port #{address.port}. Choose a port of 1024 or more with --port, or give the service the right " \
          "(systemd: AmbientCapabilities=CAP_NET_BIND_SERVICE)."
        when Errno::EADDRNOTAVAIL
          ": no interface of this machine has the address #{address.host}. Bind 127.0.0.1, or 0.0.0.0 for all of them."
        when SocketError
          ": the host #{address.host} is not known. Bind an address of this machine, like 127.0.0.1."
        else " cannot be bound: #{error.message}."
        end
      end
      private_class_method :for_path, :for_port
    end
  end
end
