# frozen_string_literal: true

require_relative "../../test/helper"
require_relative "../harness/cli"

module Bench
  # Loads over TLS and HTTP/2: what the generators count is what was answered, and servers are started so that they can be asked.
  class EdgeTest < Fairlead::Test
    needs :machine

    # A toolchain that is there: the project's own Ruby and bundle.
    class Tools
      def ruby = [RbConfig.ruby]
      def environment = {}
    end

    APP = <<~RUBY
      run ->(env) { [env["PATH_INFO"] == "/missing" ? 404 : 200, { "content-type" => "text/plain" }, ["Hello World" * (env["PATH_INFO"] == "/page" ? 500 : 1)]] }
    RUBY

    # What a generator asks of a server.
    Target = Struct.new(:port, :pid) do
      def url(path) = "https://127.0.0.1:#{port}#{path}"
      def connect = TLS.connect(port)
      def processes = ProcessTree.new(pid)
    end

    def tls = @@tls ||= TLS.new(File.join(Toolchain::WORK, "tls")).prepare

    def asked(generator, *options, name: :server)
      server = shared_server(APP, "--bind", "https://127.0.0.1:0", "--certificate", tls.certificate, "--certificate-key", tls.key, *options,
        name:)
      generator.run(Target.new(URI(server.addresses.last).port, server.pid), 1)
    end

    def test_wrk_and_h2load_ask_over_tls
      [Wrk.new(connections: 2), H2load.new(connections: 2, streams: 3)].each do |generator|
        figures = asked(generator)

        assert_operator figures[:requests], :>, 5
        assert_equal [0, 0], figures.values_at(:errors, :non_2xx), generator.name
        assert_in_delta figures[:requests_per_second], figures[:requests], figures[:requests] * 0.5
        assert_includes figures[:mean]..10_000, figures[:max]
      end
    end

    def test_each_handshake_is_a_new_one_or_resumes_the_last_ones_session
      fresh, resumed = [false, true].map { |again| asked(Handshakes.new(connections: 2, resumed: again)) }

      [fresh, resumed].each { |figures| assert_equal [0, 0], figures.values_at(:errors, :non_2xx) }
      assert_operator fresh[:requests], :>, 5
      assert_equal 0, fresh[:resumed]
      assert_includes 0..2, (resumed[:requests] * (1 - resumed[:resumed])).round, "each client's first"
    end

    def test_answers_with_an_error_status_are_not_counted_among_the_requests_per_second
      [H2load.new(connections: 1, streams: 1, path: "/missing"), Handshakes.new(connections: 1, path: "/missing")].each do |generator|
        figures = asked(generator)

        assert_operator figures[:non_2xx], :>, 0
        assert_equal [figures[:non_2xx], 0], figures.values_at(:requests, :requests_per_second), generator.name
      end
    end

    def test_clients_without_a_server_are_errors
      port = TCPServer.open("127.0.0.1", 0) { |socket| socket.local_address.ip_port }
      figures = Handshakes.new(connections: 1).run(Target.new(port), 0.2)

      assert_equal [0, 0], figures.values_at(:requests, :requests_per_second)
      assert_operator figures[:errors], :>, 0
    end

    def test_a_server_that_does_not_speak_http2_is_no_faster_one_but_has_failed
      error = assert_raises(Wrk::Failed) { H2load.parse("Application protocol: http/1.1\nfinished in 1.00s, 9.00 req/s, 1.0KB/s\n") }

      assert_match(/\Ah2load spoke http\/1.1/, error.message)
      assert_raises(Wrk::Failed) { H2load.parse("Connect error\n") }
    end

    def asked_for_pages(generator)
      PublicFiles.prepare
      asked(generator, "--compress", "--public-files", PublicFiles.folder, name: :with_assets)
    end

    # Each asset once a page, in its compressed copy where there is one.
    def test_a_page_is_there_with_all_its_assets
      [false, true].each do |fresh|
        figures = asked_for_pages(Pages.new(browsers: 2, fresh:, path: "/page"))

        assert_equal [0, 0, 2], figures.values_at(:errors, :non_2xx, :http)
        assert_operator figures[:pages], :>, 0
        assert_operator figures[:requests], :>=, figures[:pages] * 31
        assert_in_delta assets_kilobytes, figures[:page_kilobytes], 1
        assert_operator figures[:p99], :>=, figures[:p50]
      end
    end

    def assets_kilobytes
      PublicFiles.assets.map { |path| File.join(PublicFiles.folder, path) }.sum { |file| File.size?("#{file}.gz") || File.size(file) } / 1000.0
    end

    def test_a_page_that_is_not_compressed_is_no_result
      error = assert_raises(Wrk::Failed) { asked(Pages.new(browsers: 1, path: "/page", assets: ["/asset"])) }

      assert_match(/without compression/, error.message)
    end

    def test_pages_without_an_asset_are_not_counted
      figures = asked_for_pages(Pages.new(browsers: 1, path: "/page", assets: ["/missing"]))

      assert_equal [0, 0], figures.values_at(:pages, :pages_per_second)
      assert_operator figures[:non_2xx], :>, 0
    end

    # Puma over HTTP/1.1, with chunked pages and six connections.
    def test_peers_serve_the_page_and_its_assets
      workload = Workload.load("rails-page")
      { "puma" => 1, "nginx:puma" => 2, "nginx" => 2 }.each do |label, http|
        started(label, workload) do |server|
          workload.loads.each do |load|
            figures = load.generator.run(server, 1)

            assert_equal [0, 0, http], figures.values_at(:errors, :non_2xx, :http), label
            assert_operator figures[:pages], :>, 0
            assert_in_delta assets_kilobytes, figures[:page_kilobytes], 10
          end
        end
      end
    end

    def started(label, workload)
      ServerProcess.run(Server.for(label), workload, Tools.new) { |server| yield server }
    end

    # Each is asked by #start.
    def test_peers_are_started_with_tls_also_behind_a_proxy
      workload = Workload.load("tls")
      %w[puma nginx:puma nginx].each do |label|
        started(label, workload) do |server|
          assert_match(/\Ahttps:/, server.url)
          assert_equal 0, Handshakes.new(connections: 1).run(server, 0.2)[:errors], label
          assert_equal 0, H2load.new(connections: 1, streams: 2).run(server, 1)[:errors] if label.start_with?("nginx")
        end
      end
    end

    def test_peers_serve_the_public_files
      %w[files files-tls].each do |name|
        workload = Workload.load(name)
        %w[puma nginx].each do |label|
          started(label, workload) do |server|
            figures = workload.loads.last.generator.run(server, 1)

            assert_equal [0, 0], figures.values_at(:errors, :non_2xx), label
          end
        end
      end
    end

    def test_a_result_has_no_key_and_no_path_of_this_machine
      %w[tls tls-http2 json-tls json-http2 files files-tls idle-tls rails-page].map { |name| Workload.load(name) }.each do |workload|
        workload.peers.each do |label|
          settings = Results.settings(Server.for(label), workload).to_s

          refute_match(/PRIVATE KEY|#{Regexp.escape(Toolchain::ROOT)}/, settings, label)
          assert_match(/tmp\/bench\/tls/, settings, label) if workload.tls && label != "nginx:puma"
        end
      end
    end

    def test_idle_connections_over_tls_are_kept_while_others_are_busy
      figures = asked(Crowd.new(connections: 100, beside: 2))

      assert_equal [0, 0, 0], figures.values_at(:errors, :non_2xx, :closed_by_server)
      assert_operator figures[:requests], :>, 200
      assert_operator figures[:p99], :>=, figures[:p50]
    end

    def test_idle_connections_over_tls_that_the_server_closes_are_counted
      context = OpenSSL::SSL::SSLContext.new
      context.add_certificate(OpenSSL::X509::Certificate.new(File.read(tls.certificate)), OpenSSL::PKey.read(File.read(tls.key)))
      listener = OpenSSL::SSL::SSLServer.new(TCPServer.new("127.0.0.1", 0), context)
      accepting = Thread.new { loop { answer(listener.accept) } }
      figures = Crowd.new(connections: 100).run(Target.new(listener.addr[1], Process.pid), 1)

      assert_equal [0, 100], figures.values_at(:errors, :closed_by_server)
    ensure
      accepting&.kill&.join
      listener&.close
    end

    # In a thread of its own: a crowd opens all its connections before it asks.
    def answer(client)
      Thread.new do
        client.gets("\r\n\r\n")
        client.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        client.close
      end
    end
  end
end
