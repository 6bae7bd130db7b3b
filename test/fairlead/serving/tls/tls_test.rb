# frozen_string_literal: true

require "open3"
require_relative "../../../helper"
require_relative "../../../tls_client"

module Fairlead
  # Requests over TLS, as the app and other programs see them. test_tls.c has the transport's own tests.
  class TLSTest < Test
    include SpeaksHTTPS

    APP = <<~RUBY
      run(lambda do |env|
        body = case env["PATH_INFO"]
               when "/env" then env.slice("rack.url_scheme", "HTTPS", "SERVER_NAME", "SERVER_PORT").to_a.inspect
               when "/large" then "0123456789abcdef" * 131_072
               when "/echo" then env["rack.input"].read
               else Process.pid.to_s
               end
        [200, { "content-type" => "text/plain" }, [body]]
      end)
    RUBY

    def server = shared_server(APP, "--workers", "2", "--bind", "http://127.0.0.1:0", *FLAGS, files: FILES.merge("ca.pem" => SpeaksHTTPS.certificates.authority))

    def test_addresses_with_and_without_tls_are_served_side_by_side
      assert_equal %w[http https], server.addresses.map { |address| URI(address).scheme }
      assert_equal 200, server.get("/").code.to_i
      assert_equal 200, tls_client.get("/").status
    end

    def test_the_app_sees_the_scheme_and_its_port
      environment = ->(host) { tls_client.request("GET", "/env", host:).response.body }

      assert_equal [%w[rack.url_scheme https], %w[HTTPS on], %w[SERVER_NAME example.com], %w[SERVER_PORT 443]].sort.inspect,
                   eval(environment["example.com"]).sort.inspect
      assert_includes environment["example.com:8443"], '["SERVER_PORT", "8443"]'
      assert_includes server.get("/env").body, '["rack.url_scheme", "http"]'
      refute_includes server.get("/env").body, "HTTPS"
    end

    def test_a_connection_serves_one_request_after_the_other_in_any_version
      [OpenSSL::SSL::TLS1_2_VERSION, OpenSSL::SSL::TLS1_3_VERSION].each do |version|
        client = tls_client { |context| context.min_version = context.max_version = version }

        assert_equal [200], Array.new(3) { client.get("/").status }.uniq
        assert_equal 2_097_152, client.get("/large").body.bytesize
        body = Random.bytes(300_000)

        assert_equal body, client.request("POST", "/echo", body:).response.body
      end
    end

    def test_curl_trusts_it_in_each_worker
      port = URI(server.addresses.last).port
      answers = Array.new(20) do
        output, status = Open3.capture2e("curl", "-sS", "--cacert", server.path("ca.pem"), "https://localhost:#{port}/")

        assert status.success?, output
        output
      end

      assert_empty answers - server.worker_pids.map(&:to_s)
    end

    def test_a_new_certificate_is_used_for_new_connections_and_a_bad_one_is_not
      with_server(APP, *FLAGS, files: FILES) do |server|
        older = tls_client(to: server)
        subject = -> { tls_client(to: server).tap(&:close).socket.ssl.peer_cert.serial }
        first = subject.call
        server.write("key.pem", "nonsense")
        eventually("it is said") { server.log.include?("The certificate before it stays in use. The key key.pem cannot be used") }

        assert_equal first, subject.call
        SpeaksHTTPS.certificates.for("localhost").zip(%w[cert.pem key.pem]) { |text, name| server.write(name, text) }
        eventually("it is used") { subject.call != first }

        assert_equal 200, older.get("/").status
      end
    end

    # Workers share what they seal tickets with.
    def test_sessions_are_resumed_by_any_worker
      client = tls_client
      client.get("/")
      session = client.socket.ssl.session
      resumed = Array.new(12) { tls_client(session:).tap { |again| again.get("/") }.socket.ssl.session_reused? }

      assert_equal [true], resumed.uniq
    end

    # What seals tickets outlives workers and code.
    def test_sessions_are_resumed_after_restarts
      with_server(APP, *FLAGS, "--workers", "2", files: FILES) do |server|
        session = nil
        resumed = lambda do
          client = tls_client(to: server, session:)
          client.get("/")
          session = client.socket.ssl.session
          client.close
          client.socket.ssl.session_reused?
        end

        assert_equal [false, true], [resumed.call, resumed.call]
        %i[HUP USR2 USR2].each do |signal|
          server.restart(signal)

          assert resumed.call, signal.to_s
        end
      end
    end

    # They have a minute for their handshake, and may have all places until somebody else comes.
    def test_silent_clients_make_room_for_others
      limit = { rlimit_nofile: [150, 150] }
      with_server(APP, *FLAGS, "--head-timeout", "60", files: FILES, spawn_options: limit) do |server|
        silent = Array.new(200) { connect_to_https(server) }

        assert_equal 200, tls_client(to: server, timeout: 30).get("/").status
        assert_operator silent.count { |socket| !socket.wait_readable(0) }, :>, 20, "others stay"
      ensure
        silent&.each(&:close)
      end
    end

    # They have ten minutes for their handshake.
    def test_silent_clients_go_to_other_workers_when_theirs_are_replaced
      patient = %w[--workers 2 --head-timeout 600 --drain-timeout 600]
      with_server(APP, *FLAGS, *patient, files: FILES) do |server|
        before = server.worker_pids
        silent = Array.new(8) { connect_to_https(server) }
        eventually("they are accepted") { status(server)[:total][:connections] == 8 }
        server.restart(:HUP)

        eventually("the workers before have ended") { (before & server.worker_pids).empty? }
        answers = silent.map { |socket| HTTPClient.new(TLSSocket.new(socket) { |context| context.verify_mode = OpenSSL::SSL::VERIFY_NONE }).get("/") }

        assert_each_equal 200, answers, server, &:status
        assert_empty answers.map { |answer| answer.body.to_i } & before
      ensure
        silent&.each(&:close)
      end
    end

    def test_plain_http_learns_that_the_port_is_for_https
      response = HTTPClient.new(connect_to_https(server)).get("/")

      assert_equal 400, response.status
      assert_match(%r{use an https:// URL}, response.body)
    end

    def test_what_is_wrong_with_the_certificate_is_said_at_the_start
      other = SpeaksHTTPS.certificates.for("localhost").last
      locked = OpenSSL::PKey::EC.generate("prime256v1").private_to_pem(OpenSSL::Cipher.new("aes-256-cbc"), "secret")
      {
        [] => /`bind` wants https:\/\/, but there is no certificate\. Set `certificate` and `certificate_key`/,
        %w[--certificate cert.pem] => /each `certificate` needs its key: set `certificate_key`/,
        %w[--certificate none.pem --certificate-key key.pem] => /`certificate` none\.pem cannot be read: No such file/,
        %w[--certificate key.pem --certificate-key key.pem] => /certificate key\.pem cannot be used: no start line/,
        %w[--certificate cert.pem --certificate-key other.pem] => /other\.pem does not belong to the certificate cert\.pem/,
        %w[--certificate cert.pem --certificate-key locked.pem] => /The key locked\.pem cannot be used/
      }.each do |flags, message|
        failed = with_server(APP, "--bind", "https://127.0.0.1:0", *flags, ready: false,
                             files: FILES.merge("other.pem" => other, "locked.pem" => locked))

        assert_equal 1, failed.wait_for_end.exitstatus
        assert_match message, failed.log
      end
    end

    private

    def status(server) = StatusReport.new(ServerSelection.new(ControlSocket.servers, pid: server.pid).server).to_h
  end
end
