# frozen_string_literal: true

require "open3"
require_relative "../../../helper"
require_relative "../../../tls_client"

module Fairlead
  # Clients show certificates, and the app sees whose. test_tls.c has the handshakes, relay_test.rb requests that a sibling answers.
  class ClientCertificatesTest < Test
    include SpeaksHTTPS

    APP = "run ->(env) { [200, { \"content-type\" => \"text/plain\" }, [env.select { |key, _| key.start_with?(\"SSL_CLIENT\") }.inspect]] }"
    OPTIONAL = [*FLAGS, "--client-ca", "ca.pem", "--client-certificate", "optional"].freeze
    private_constant :APP, :OPTIONAL

    def files
      @files ||= begin
        certificate, key = SpeaksHTTPS.certificates.for("client.test")
        { **FILES, "ca.pem" => SpeaksHTTPS.certificates.authority, "client.pem" => certificate, "client.key" => key }
      end
    end

    def test_the_app_sees_who_has_shown_one_over_any_version_of_http
      with_server(APP, *OPTIONAL, files:) do |server|
        %w[--http1.1 --http2].each do |version|
          seen = eval(curl(server, version, "--cert", "client.pem", "--key", "client.key"))

          assert_equal %w[SUCCESS CN=client.test] << "CN=Test authority", seen.values_at("SSL_CLIENT_VERIFY", "SSL_CLIENT_S_DN", "SSL_CLIENT_I_DN")
          assert_equal files["client.pem"], seen["SSL_CLIENT_CERT"]
          assert_equal OpenSSL::X509::Certificate.new(files["client.pem"]).serial, seen["SSL_CLIENT_M_SERIAL"].to_i(16)
          assert_equal({ "SSL_CLIENT_VERIFY" => "NONE" }, eval(curl(server, version, "-H", "SSL_CLIENT_VERIFY: SUCCESS")))
        end
      end
    end

    def test_clients_without_one_can_be_refused
      with_server(APP, *FLAGS, "--client-ca", "ca.pem", files:) do |server|
        assert_includes curl(server, "--cert", "client.pem", "--key", "client.key"), "CN=client.test"
        refute_predicate run_curl(server).last, :success?
      end
    end

    def test_authorities_need_an_address_with_tls_and_a_file
      { ["--client-ca", "ca.pem"] => /client-ca: `client_ca` needs an https:\/\/ address/,
        [*FLAGS, "--client-ca", "none.pem"] => /`client_ca` none\.pem cannot be read/,
        [*FLAGS, "--client-ca", "key.pem"] => /The authorities of clients in key\.pem cannot be used/ }.each do |flags, message|
        failed = with_server(APP, *flags, ready: false, files:)

        assert_equal 1, failed.wait_for_end.exitstatus
        assert_match message, failed.log
      end
    end

    private

    def curl(server, *flags)
      output, status = run_curl(server, *flags)

      assert_predicate status, :success?, output
      output
    end

    def run_curl(server, *flags)
      Open3.capture2e("curl", "-sS", "-m", "20", "--cacert", "ca.pem", *flags, "https://localhost:#{server.port}/", chdir: server.directory)
    end
  end
end
