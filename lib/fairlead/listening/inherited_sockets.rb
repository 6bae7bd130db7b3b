# frozen_string_literal: true

require "json"

module Fairlead
  class Listener
    # Listening sockets that this process did not open itself: a service manager did (LISTEN_FDS, sd_listen_fds(3)), or the server
    # that this process replaces.
    module InheritedSockets
      FIRST_DESCRIPTOR = 3 # of a service manager
      # Those of the replaced server, with what a service manager does not say of its own.
      VARIABLE = "FAIRLEAD_LISTENERS"
      private_constant :FIRST_DESCRIPTOR, :VARIABLE

      # Removes the variables, so that no child takes the sockets for its own.
      #
      # @raise [ConfigurationError] if one of them is no listening socket.
      def self.take(variables = ENV)
        count, pid, _names, own = %w[LISTEN_FDS LISTEN_PID LISTEN_FDNAMES].push(VARIABLE).map { |name| variables.delete(name) }
        return JSON.parse(own).map { |descriptor, asked, owned| adopt(descriptor, asked:, owned:) } if own
        return [] unless count && (pid.nil? || pid.to_i == Process.pid)

        Array.new(count.to_i) { |index| adopt(FIRST_DESCRIPTOR + index) }
      end

      # @return [Hash{String => String}] variables for the program that replaces this process.
      def self.variables(listeners)
        { VARIABLE => Messages.json(listeners.map { |listener| [listener.io.fileno, listener.asked, listener.owned] }) }
      end

      def self.adopt(descriptor, **description)
        socket = Socket.for_fd(descriptor)
        return Listener.new(socket, **description) if socket.getsockopt(:SOCKET, :ACCEPTCONN).bool

        raise ConfigurationError, "The descriptor #{descriptor} (LISTEN_FDS) is a socket that does not " \
                                  "listen. In the socket unit, set Accept=no."
      rescue SystemCallError => error
        raise ConfigurationError, "The descriptor #{descriptor} (LISTEN_FDS) is no socket: #{error.message}."
      end
      private_class_method :adopt
    end
  end
end
