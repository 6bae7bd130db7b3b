# frozen_string_literal: true

require "socket"

module Fairlead
  # Looks host names up with the system's own resolver (getaddrinfo: /etc/hosts, nsswitch.conf, mDNS …), in a thread, while the
  # fiber waits. Async asks Ruby's Resolv instead, which knows only a part of that, and reads /etc/hosts once.
  #
  # Ruby asks the scheduler for addresses only, and then wants a numeric service. So service names ("https") become numbers
  # here, at each method of the socket library that takes one.
  module NameLookup
    # So many lookups run at once; further ones wait. Each takes a thread for as long as the resolver needs.
    MOST = 256
    PLACES = ::Thread::SizedQueue.new(MOST)
    private_constant :MOST, :PLACES

    # The methods that take a host and a service, with the position of each.
    ENTRIES = [
      [::TCPSocket, :initialize, { host: 0, service: 1, local_host: 2, local_service: 3 }],
      [::TCPServer, :initialize, { host: 0, service: 1 }],
      [::UDPSocket, :connect, { host: 0, service: 1, protocol: "udp" }],
      [::UDPSocket, :bind, { host: 0, service: 1, protocol: "udp" }],
      [::UDPSocket, :send, { host: 2, service: 3, protocol: "udp" }],
      [::Addrinfo.singleton_class, :getaddrinfo, { host: 0, service: 1 }],
      [::Addrinfo.singleton_class, :tcp, { host: 0, service: 1 }],
      [::Addrinfo.singleton_class, :udp, { host: 0, service: 1, protocol: "udp" }],
      [::Addrinfo.singleton_class, :ip, { host: 0 }],
      [::Socket.singleton_class, :getaddrinfo, { host: 0, service: 1 }],
      [::Socket.singleton_class, :pack_sockaddr_in, { host: 1, service: 0 }],
      [::Socket.singleton_class, :sockaddr_in, { host: 1, service: 0 }]
    ].freeze
    private_constant :ENTRIES

    class << self
      # Called by the server. May be called again.
      #
      # @return [void]
      def establish
        # From Ruby 3.4 on, TCPSocket.new looks names up in threads, and waits for them without the scheduler.
        ::Socket.tcp_fast_fallback = false if ::Socket.respond_to?(:tcp_fast_fallback=)
        return if @established

        @established = true
        ENTRIES.each { |owner, method, positions| owner.prepend(entry(method, **positions)) }
      end

      # @param hostname [String]
      # @return [Array<String>] its addresses, in the system's order of preference.
      # @raise [SocketError]
      def resolve(hostname)
        PLACES.push(true)
        thread = in_thread(hostname)
        thread ? thread.value : look_up(hostname)
      end

      # @api private
      # @return [Boolean] whether a service is given by its name.
      def named?(service) = service.is_a?(::String) && !service.match?(/\A\d*\z/)

      # @api private
      # @return [Integer, nil] its port; nil if the system knows no such service.
      def port(service, protocol)
        ::Socket.getservbyname(service, protocol)
      rescue ::SocketError
        nil
      end

      private

      def look_up(hostname) = ::Addrinfo.getaddrinfo(hostname, nil, nil, :STREAM).map(&:ip_address).uniq

      # @return [Thread, nil] nil: the system allows no more threads.
      def in_thread(hostname)
        BareThread.start do
          look_up(hostname)
        ensure
          PLACES.pop
        end
      rescue ::ThreadError
        PLACES.pop
        nil
      end

      # A zone (fe80::1%eth0) is lost on the way through a scheduler, and an unknown service is an error. Neither needs a network,
      # so the lookup may block.
      def entry(method, host: nil, service: nil, local_host: nil, local_service: nil, protocol: "tcp")
        hosts, services = [host, local_host].compact, [service, local_service].compact
        ::Module.new do
          define_method(method) do |*arguments, **options, &block|
            next super(*arguments, **options, &block) unless ::Fiber.current_scheduler

            in_place = hosts.any? { |at| (given = arguments[at]).is_a?(::String) && given.include?("%") }
            services.each do |at|
              next unless NameLookup.named?(name = arguments[at])

              (port = NameLookup.port(name, protocol)) ? arguments[at] = port : in_place = true
            end
            in_place ? ::Fiber.blocking { super(*arguments, **options, &block) } : super(*arguments, **options, &block)
          end
          private method if method == :initialize
        end
      end
    end
  end
end
