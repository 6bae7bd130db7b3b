# frozen_string_literal: true

require "socket"
require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # In a request, names of hosts and services are looked up as the system looks them up.
  class NameLookupTest < Test
    include SpeaksHTTP

    SOURCE = <<~'RUBY'
      TRIED = ->(&block) { block.call rescue "#{$!.class}: #{$!.message}" }
      SERVER = TCPServer.new("127.0.0.1", 0)
      PORT = SERVER.local_address.ip_port
      LOOKUPS = {
        "upper case" => -> { Addrinfo.tcp("LOCALHOST", 443).inspect_sockaddr },
        "all addresses" => -> { Addrinfo.getaddrinfo("localhost", nil, nil, :STREAM).map(&:ip_address) },
        "a service" => -> { Addrinfo.getaddrinfo("localhost", "https", nil, :STREAM).map(&:inspect_sockaddr) },
        "a service as a number" => -> { Addrinfo.getaddrinfo("localhost", "443", nil, :STREAM).map(&:inspect_sockaddr) },
        "a service at a numeric host" => -> { Addrinfo.tcp("127.0.0.1", "https").inspect_sockaddr },
        "a service over UDP" => -> { Addrinfo.udp("localhost", "ntp").inspect_sockaddr },
        "an unknown service" => -> { Addrinfo.getaddrinfo("localhost", "nonsense") },
        "an unknown service at a numeric host" => -> { TCPSocket.new("127.0.0.1", "nonsense") },
        "an unknown host" => -> { Addrinfo.getaddrinfo("no.such.host.invalid", 80) },
        "Socket.getaddrinfo" => -> { Socket.getaddrinfo("localhost", "https", nil, :STREAM).map { |entry| entry[1] } },
        "Socket.sockaddr_in" => -> { Socket.unpack_sockaddr_in(Socket.sockaddr_in("https", "localhost")) },
        "connect" => -> { socket = TCPSocket.new("localhost", PORT); socket.remote_address.ip_address },
        "connect from" => -> { socket = TCPSocket.new("localhost", PORT, "localhost", 0); socket.local_address.ip_address },
        "connect to a service" => -> { TCPSocket.new("localhost", "tcpmux").close rescue $!.class.name },
        "Socket.tcp" => -> { Socket.tcp("localhost", PORT) { |socket| socket.remote_address.ip_address } },
        "listen" => -> { server = TCPServer.new("localhost", 0); server.local_address.ip_address },
        "UDP" => -> { socket = UDPSocket.new; socket.connect("localhost", "ntp"); socket.remote_address.inspect_sockaddr },
        "short form" => -> { Addrinfo.tcp("127.1", 80).ip_address },
        "hexadecimal" => -> { Addrinfo.tcp("0x7f.1", 80).ip_address },
        "zone" => -> { Addrinfo.getaddrinfo("fe80::1%lo", 80, nil, :STREAM).map(&:ip_address) },
        "ip" => -> { Addrinfo.ip("localhost").ip_address }
      }
    RUBY
    APP = <<~'RUBY'
      require "socket"
      require_relative "lookups"
      run(lambda do |env|
        result = env["PATH_INFO"] == "/name" ? Addrinfo.tcp(env["QUERY_STRING"], 80).ip_address : TRIED.(&LOOKUPS.fetch(env["QUERY_STRING"].tr("+", " ")))
        [200, {}, [result.inspect]]
      end)
    RUBY
    module_eval(SOURCE)

    def server = shared_server(APP, files: { "lookups.rb" => SOURCE })

    LOOKUPS.each_key do |name|
      define_method("test_#{name.tr(" ", "_")}") do
        assert_equal TRIED.(&LOOKUPS.fetch(name)).inspect, client.get("/?#{name.tr(" ", "+")}").body
      end
    end

    def test_a_change_of_the_hosts_file_is_seen
      prefix = ["unshare", "--mount", "sh", "-c", 'mount --bind hosts /etc/hosts && exec "$@"', "sh"]
      server = with_server(APP, prefix:, files: { "lookups.rb" => SOURCE, "hosts" => "127.0.0.7 harbour\n" })
      assert_equal '"127.0.0.7"', client(to: server).get("/name?harbour").body
      server.write("hosts", "127.0.0.8 harbour\n")
      assert_equal '"127.0.0.8"', client(to: server).get("/name?harbour").body
    end
  end
end
