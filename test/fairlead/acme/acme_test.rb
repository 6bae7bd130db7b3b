# frozen_string_literal: true

require_relative "../../acme_authority"
require_relative "../../helper"
require_relative "../../tls_client"

module Fairlead
  # `certificates` with a server and a small authority of the tests: it obtains, renews, and goes on serving while it cannot.
  #
  # Covers acme/acme_challenges.rb, acme/acme_folder.rb, acme/acme_order.rb, supervision/acme_process.rb
  class ACMETest < Test
    include SpeaksHTTPS

    APP = "run ->(env) { [200, {}, [\"the app: \" + env[\"PATH_INFO\"]]] }"
    NAMES = %w[shop.test www.shop.test].freeze
    FLAGS = ["--bind", "http://127.0.0.1:0", "--bind", "https://127.0.0.1:0", "--certificates", NAMES.first, "--certificates", NAMES.last,
             "--redirect-to-https", "--certificates-email", "hostmaster@shop.test"].freeze
    private_constant :APP, :NAMES, :FLAGS

    def setup
      super
      @authority = ACMEAuthority.new(SpeaksHTTPS.certificates)
    end

    def teardown
      @authority.close
      super
    end

    # The first one is due soon after it was issued. On a busy machine, no client may have seen it.
    def test_a_certificate_is_obtained_and_renewed_while_the_server_serves
      @authority.lifetimes = [8, 90 * 86_400]
      with_server(APP, *flags) do |server|
        assert_equal "/CN=shop.test", issuer(server).to_s, "a placeholder, by itself"
        assert_match(/\AThe certificate for shop\.test, www\.shop\.test is being obtained/, problems(server))
        @authority.ask_at(server.port)
        eventually("it is used", within: 60) { issuer(server).to_s == "/CN=Test authority" }
        eventually("it is renewed", within: 60) { certificate(server).not_after > Time.now + 86_400 }
        eventually("all is well") { problems(server).empty? }

        assert_equal 200, tls_client(to: server, host: "www.shop.test").get("/").status
        assert_equal 2, @authority.requests.count("POST /finalize")
        # Said last: by then, workers may use it already.
        eventually("both are said") { server.log.scan(/The certificate for shop\.test, www\.shop\.test has been obtained/).size == 2 }
        folder = server.path("storage/certificates/127.0.0.1")

        assert_equal 0o600, File.stat(File.join(folder, "shop.test.pem")).mode & 0o777
        assert_empty Dir.children(File.join(folder, "tokens"))
        assert_equal "301", server.get("/", "host" => "shop.test").code
        assert_equal "the app: /.well-known/acme-challenge/none", server.get("/.well-known/acme-challenge/none").body
      end
    end

    # With one process, and an authority that refuses at first. A restart finds what there is.
    def test_a_server_serves_while_the_authority_refuses
      @authority.refusal = "no such host"
      with_server(APP, *flags, "--workers", "0", files: { "storage/keep" => "" }) do |server|
        @authority.ask_at(server.port)
        eventually("it is said", within: 60) { server.log.include?("could not be obtained: shop.test: no such host. The next try is at") }
        # Noted after it has been said.
        eventually("it is shown") { problems(server).match?(/could not be obtained: shop\.test: no such host.* must reach this server/) }

        assert_equal "/CN=shop.test", issuer(server).to_s
        server.stop
        @authority.refusal = nil
        @authority.ask_at(nil)
        server.start.wait_until_ready
        @authority.ask_at(server.port)
        eventually("it is obtained", within: 60) { issuer(server).to_s == "/CN=Test authority" }
        eventually("all is well") { problems(server).empty? }
      end
    end

    def test_what_is_missing_is_said_at_the_start
      { ["--bind", "http://127.0.0.1:0", "--certificates", "shop.test"] => /`certificates` needs an https:\/\/ address/,
        ["--bind", "https://127.0.0.1:0", "--certificates", "*.shop.test"] => /`certificates` must be host names like example\.com/,
        ["--bind", "https://127.0.0.1:0", "--certificates", "shop.test", "--acme-directory", "nonsense"] => /`acme_directory` must be a URL/,
        ["--bind", "https://127.0.0.1:0", "--certificates", "shop.test", "--certificates-folder", "config.ru"] =>
          /`certificates_folder` cannot be written/ }.each do |flags, message|
        failed = with_server(APP, *flags, ready: false)

        assert_equal 1, failed.wait_for_end.exitstatus
        assert_match message, failed.log
      end
    end

    private

    def flags = [*FLAGS, "--acme-directory", @authority.directory]

    def certificate(server)
      socket = TLSSocket.new(connect_to_https(server), host: "www.shop.test")
      socket.ssl.peer_cert
    ensure
      socket&.close
    end

    def issuer(server) = certificate(server).issuer

    def problems(server)
      StatusReport.new(ControlSocket.servers.find { |one| one[:pid] == server.pid }).to_h[:matters].join("\n")
    end
  end
end
