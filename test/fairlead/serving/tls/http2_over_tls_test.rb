# frozen_string_literal: true

require "open3"
require_relative "../../../browser"
require_relative "../../../helper"
require_relative "../../../http2_client"
require_relative "../../../tls_client"

module Fairlead
  # HTTP/2 over TLS: clients negotiate it, and restarts fail none of their requests.
  class HTTP2OverTLSTest < Test
    include SpeaksHTTPS

    needs :browser

    APP = <<~'RUBY'
      require "async/websocket/adapters/rack"
      echo = lambda do |connection|
        while (message = connection.read)
          connection.send_text("#{message.to_str} back")
          connection.flush
        end
      end
      ASSETS = 20
      PAGE = "<!doctype html><title>Assets</title>" +
             Array.new(ASSETS) { |i| "<script src=/#{i}.js></script>" }.join + "<script>document.title = window.loaded</script>"
      run(lambda do |env|
        case env["PATH_INFO"]
        when "/page" then [200, { "content-type" => "text/html" }, [PAGE]]
        when /js\z/ then [200, { "content-type" => "text/javascript" }, ["window.loaded = (window.loaded || 0) + 1"]]
        when "/socket" then Async::WebSocket::Adapters::Rack.open(env, &echo) || [400, {}, []]
        when "/echo" then [200, {}, [env["rack.input"].read]]
        else [200, { "content-type" => "text/plain" }, ["#{env["SERVER_PROTOCOL"]} #{env["rack.url_scheme"]} #{env["HTTPS"]}"]]
        end
      end)
    RUBY

    def flags = [*FLAGS, "--workers", "2"]
    def files = FILES.merge("ca.pem" => SpeaksHTTPS.certificates.authority)
    def server = shared_server(APP, *flags, "--queue-target", "0", files:)
    def port(server = self.server) = URI(server.addresses.last).port

    def curl(path, *flags)
      output, status = Open3.capture2("curl", "-sS", "-m", "20", "--cacert", server.path("ca.pem"), *flags, "https://localhost:#{port}#{path}",
                                      binmode: true)
      assert_predicate status, :success?
      output
    end

    def test_clients_choose_by_alpn
      assert_equal "HTTP/2 https on", curl("/")
      assert_equal "HTTP/1.1 https on", curl("/", "--http1.1")
      assert_equal "HTTP/1.1 https on", curl("/", "--no-alpn")
    end

    def test_bodies_of_megabytes
      server.write("body", "")
      File.binwrite(server.path("body"), bytes = Random.new(1).bytes(3_000_000))
      assert_equal bytes, curl("/echo", "--data-binary", "@#{server.path("body")}")
    end

    def test_chromium_loads_a_page_with_its_assets
      page = Browser.page
      page.command("Security.setIgnoreCertificateErrors", ignore: true)
      page.go_to("https://localhost:#{port}/page")
      eventually("all assets have run") { page.evaluate("document.title") == "20" }
      protocols = page.evaluate("performance.getEntries().map(entry => entry.nextHopProtocol).filter(name => name)")
      assert_equal ["h2"], protocols.uniq
      assert_operator protocols.size, :>=, 20
    ensure
      page&.close
    end

    # Which opens a connection of HTTP/1.1 for it.
    def test_chromium_opens_a_websocket_beside_http2
      page = Browser.page
      page.command("Security.setIgnoreCertificateErrors", ignore: true)
      page.go_to("https://localhost:#{port}/page")
      page.execute(<<~JS)
        window.heard = [];
        const socket = new WebSocket(`wss://${location.host}/socket`);
        socket.onmessage = event => { window.heard.push(event.data); if (window.heard.length < 2) socket.send("again"); };
        socket.onopen = () => socket.send("ahoy");
      JS
      eventually("both messages have come back") { page.evaluate("window.heard") == ["ahoy back", "again back"] }
      page.execute("void fetch('/').then(answer => answer.text()).then(text => { window.text = text; });")
      eventually("pages still come over HTTP/2") { page.evaluate("window.text") == "HTTP/2 https on" }
    ensure
      page&.close
    end

    def test_many_requests_of_many_connections
      output, = Open3.capture2e("h2load", "-n", "2000", "-c", "8", "-m", "8", "https://localhost:#{port}/")
      assert_includes output, "Application protocol: h2\n"
      assert_includes output, "2000 succeeded, 0 failed, 0 errored, 0 timeout"
    end

    def connect(server)
      TLSSocket.new(TCPSocket.new("127.0.0.1", port(server))) do |context|
        context.set_params(cert_store: SpeaksHTTPS.certificates.store)
        context.alpn_protocols = ["h2"]
      end
    end

    # Restarts while requests are in flight on some connections.
    def test_restarts_fail_no_request
      with_server(APP, *flags, files:, lint: false) do |server|
        before = server.worker_pids
        statuses = HTTP2Client.ask_meanwhile("/", -> { connect(server) }) do
          server.signal(:HUP)
          eventually("the workers have restarted") { server.log.include?("The workers have been restarted.") }
          server.signal(:USR2)
          eventually("new code serves") { server.log.scan("  addresses ").size == 2 }
          eventually("the old workers have ended") { (server.worker_pids & before).empty? }
        end
        assert_equal [200], statuses.keys
      end
    end
  end
end
