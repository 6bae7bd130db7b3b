# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../tls_client"

module Fairlead
  # What HAProxy and nginx say of their clients, by the PROXY protocol and in headers.
  # Covers configuration/network.rb
  class ProxiesTest < Test
    APP = <<~RUBY
      run ->(env) { [200, {}, [env.values_at("REMOTE_ADDR", "REMOTE_PORT", "rack.url_scheme", "SERVER_PORT").inspect]] }
    RUBY
    PROXIED = "http://127.0.0.1:0?proxy_protocol=1"
    # Where nginx keeps large bodies: another folder belongs to root.
    TEMPORARY = %w[client_body proxy fastcgi uwsgi scgi].map { |name| "#{name}_temp_path #{name};" }.join
    CLIENT = "127.0.0.7" # neither the proxy's address nor ours

    def setup
      super
      @folder = Dir.mktmpdir("fairlead-")
      @sockets = []
      @pids = []
    end

    def teardown
      @pids.each do |pid|
        Process.kill(:TERM, pid)
        Process.wait(pid)
      end
      @sockets.each(&:close)
      FileUtils.remove_entry(@folder)
      super
    end

    def test_haproxy_by_the_proxy_protocol
      with_server(APP, "--bind", PROXIED, "-w", "2") do |server|
        ports = haproxy("send-proxy", "send-proxy-v2", "send-proxy-v2 check inter 50ms proxy-v2-options crc32c,unique-id", server:)

        ports.each do |port|
          own, answers = ask(port, 3)
          assert_equal [[CLIENT, own.to_s, "http", "80"].inspect] * 3, answers
        end
      end
    end

    def test_nginx_by_the_proxy_protocol
      with_server(APP, "--bind", PROXIED) do |server|
        port, other = sockets(2)
        nginx("stream { server { listen 127.0.0.1:#{port}; proxy_protocol on; proxy_pass 127.0.0.1:#{server.port}; }
                                server { listen 127.0.0.1:#{other}; proxy_pass 127.0.0.1:#{server.port}; } }")
        own, answers = ask(port, 2)

        assert_equal [[CLIENT, own.to_s, "http", "80"].inspect] * 2, answers
        assert_equal [nil], ask(other).last, "a connection without a header is closed"
      end
    end

    def test_the_header_comes_before_the_handshake
      files = SpeaksHTTPS::FILES
      with_server(APP, "--bind", PROXIED.sub("http", "https"), *SpeaksHTTPS::FLAGS.drop(2), "--trusted-proxies", "192.0.2.1", files:) do |server|
        answers = ["", "X-Forwarded-Proto: http"].map do |field|
          socket = TCPSocket.new("127.0.0.1", server.port)
          socket.write("PROXY TCP4 192.0.2.1 127.0.0.1 4711 443\r\n")
          client = HTTPClient.new(TLSSocket.new(socket) { |context| context.cert_store = SpeaksHTTPS.certificates.store })
          client.get("/", *[field].grep(/./)).body.tap { client.close }
        end

        assert_equal [["192.0.2.1", "4711", "https", "443"].inspect, ["192.0.2.1", "4711", "http", "80"].inspect], answers
      end
    end

    def test_headers_of_trusted_proxies_alone
      with_server(APP, "--trusted-proxies", "127.0.0.1/32", "--trusted-proxies", "192.0.2.0/24") do |server|
        port, = sockets(1)
        nginx("http { #{TEMPORARY} access_log off; server { listen 127.0.0.1:#{port}; location / {
                         proxy_set_header Host $host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
                         proxy_set_header X-Forwarded-Proto https; proxy_pass http://127.0.0.1:#{server.port}; } } }")

        assert_equal [[CLIENT, nil, "https", "443"].inspect], ask(port).last
        assert_equal [["203.0.113.9", nil, "https", "443"].inspect],
                     ask(port, from: "127.0.0.1", fields: ["X-Forwarded-For: 203.0.113.9, 192.0.2.7"]).last
        assert_equal [[CLIENT, nil, "http", "80"].inspect],
                     ask(server.port, fields: ["X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: https"]).last
      end
    end

    def test_without_the_option_the_peer_is_the_client_and_anybody_says_the_scheme
      with_server(APP) do |server|
        assert_equal [[CLIENT, nil, "https", "443"].inspect],
                     ask(server.port, fields: ["X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: https"]).last
      end
    end

    def test_a_unix_socket_is_trusted_if_the_option_says_so
      { "unix" => "203.0.113.9", "private" => "127.0.0.1" }.each do |trusted, address|
        with_server(APP, "--bind", "unix:app.sock", "--trusted-proxies", trusted) do |server|
          server.connect(unix: server.path("app.sock")) do |socket|
            socket.write("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.9\r\nConnection: close\r\n\r\n")

            assert_includes socket.read, address
          end
        end
      end
    end

    private

    # @return [Array<Integer>] the ports of as many listening sockets, which a proxy inherits.
    def sockets(count)
      new = Array.new(count) { TCPServer.new("127.0.0.1", 0) }
      @sockets.concat(new)
      new.map { |socket| socket.local_address.ip_port }
    end

    # @return [Array<Integer>] a port for each way to speak to the server.
    def haproxy(*ways, server:)
      ports = sockets(ways.size)
      listeners = ways.each_with_index.map { |way, index| "listen l#{index}\n  bind fd@#{10 + index}\n  server s 127.0.0.1:#{server.port} #{way}" }
      times = %w[connect client server].map { |name| "  timeout #{name} 30s" }
      write("haproxy.cfg", ["global", "  maxconn 100", "defaults", "  mode tcp", *times, *listeners, ""].join("\n"))
      spawn("haproxy", "-db", "-q", "-f", "#{@folder}/haproxy.cfg")
      ports
    end

    def nginx(text)
      modules = Dir["/usr/lib/nginx/modules/ngx_stream_module.so"].map { |path| "load_module #{path};" }.join
      write("nginx.conf", "#{modules} daemon off; pid #{@folder}/nginx.pid; events {} #{text}")
      inherited = @sockets.each_index.map { |index| "#{10 + index};" }.join
      spawn({ "NGINX" => inherited }, "nginx", "-e", "stderr", "-p", @folder, "-c", "#{@folder}/nginx.conf")
    end

    def write(name, text) = File.write("#{@folder}/#{name}", text)

    def spawn(*command)
      descriptors = @sockets.each_with_index.to_h { |socket, index| [10 + index, socket] }
      @pids << Process.spawn(*command, **descriptors, %i[out err] => "#{@folder}/log")
    end

    # @return [Array(Integer, Array<String, nil>)] the client's port, and what it got: nil if it got nothing.
    def ask(port, count = 1, from: CLIENT, fields: [])
      socket = TCPSocket.new("127.0.0.1", port, from, 0)
      client = HTTPClient.new(socket)
      [socket.local_address.ip_port, Array.new(count) { client.get("/", *fields)&.body }]
    rescue Errno::ECONNRESET
      [nil, [nil]]
    ensure
      socket&.close
    end
  end
end
