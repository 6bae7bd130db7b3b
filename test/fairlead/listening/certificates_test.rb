# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../tls_client"
require_relative "../../scraping"

module Fairlead
  # What `fairlead status` and the metrics say of certificates, and which host gets which.
  #
  # Covers listening/localhost_certificate.rb
  class CertificatesTest < Test
    include SpeaksHTTPS
    include Scraping

    APP = "run ->(env) { [200, {}, [env[\"SERVER_NAME\"]]] }"
    DAY = 86_400
    TWO = ["--bind", "https://127.0.0.1:0", "--certificate", "cert.pem", "--certificate", "other.pem",
           "--certificate-key", "key.pem", "--certificate-key", "other.key", "--metrics", "http://127.0.0.1:0"].freeze
    private_constant :APP, :DAY, :TWO

    def test_status_and_metrics_say_when_certificates_expire_and_what_is_wrong_with_new_ones
      soon = Time.now + (3 * DAY) + 60
      with_server(APP, *TWO, files: files(soon)) do |server|
        assert_equal ["localhost", "*.example.test"], status(server)[:certificates].map { |one| one[:name] }
        assert_match(/\AThe certificate for \*\.example\.test expires in 3 days, on #{soon.utc.strftime("%F")}.* Renew other\.pem:/,
                     status(server)[:matters].join("\n"))
        assert_includes CLI::StatusTable.new(status(server)).to_s, "certificate for *.example.test until #{soon.localtime.strftime("%F")}"
        expiry = eventually("it is a metric") { figures(server)['fairlead_certificate_expiry_timestamp_seconds{name="*.example.test"}'] }

        assert_in_delta soon.to_i, expiry, 2
        server.write("other.key", "nonsense")
        eventually("it is reported") { status(server)[:matters].join[/A new certificate cannot be used.* other\.key .* Replace the file/] }
        eventually("it is a metric") { figures(server)["fairlead_certificate_problem"] == 1 }
        pair("*.example.test", "other.pem", "other.key", Time.now - DAY).each { |name, text| server.write(name, text) }
        eventually("it has expired") { status(server)[:matters].join[/\AThe certificate for \*\.example\.test has expired/] }
        pair("*.example.test", "other.pem", "other.key", Time.now + (15 * DAY)).each { |name, text| server.write(name, text) }
        eventually("all is well") { status(server)[:matters].empty? }
      end
    end

    def test_clients_get_the_certificate_for_the_host_that_they_name
      with_server(APP, *TWO, files: files(Time.now + DAY)) do |server|
        { "localhost" => "localhost", "a.example.test" => "*.example.test", "elsewhere.test" => "localhost" }.each do |host, name|
          socket = TLSSocket.new(connect_to_https(server), host:)

          assert_includes socket.ssl.peer_cert.subject.to_s, "CN=#{name}", host
          socket.close
        end
      end
    end

    def test_each_certificate_needs_its_key
      failed = with_server(APP, *TWO[0..7], ready: false, files: files(Time.now + DAY))

      assert_equal 1, failed.wait_for_end.exitstatus
      assert_match(/each `certificate` needs its key: .* in the same order \(2 and 1\)/, failed.log)
    end

    def test_localhost_has_one_by_the_gem_localhost
      with_server(APP, "--bind", "https://localhost:0", env: { "XDG_STATE_HOME" => (state = Dir.mktmpdir) }) do |server|
        client = TLSSocket.new(connect_to_https(server))
        certificate = client.ssl.peer_cert
        client.close

        assert_equal File.read(File.join(state, "localhost.rb/localhost.crt")), certificate.to_pem
        assert OpenSSL::SSL.verify_certificate_identity(certificate, "localhost")
      end
    ensure
      FileUtils.remove_entry(state)
    end

    # Of a gem that is not there, Ruby says so.
    def test_localhost_without_the_gem
      failed = with_server(APP, "--bind", "https://localhost:0", ready: false,
                           files: { "none/localhost.rb" => "raise LoadError, \"cannot load such file -- localhost\"" }, env: { "RUBYLIB" => "none" })

      assert_equal 1, failed.wait_for_end.exitstatus
      assert_match(/no certificate for https:\/\/localhost\. Add the gem localhost/, failed.log)
    end

    private

    def files(other_expires) = { **FILES, **pair("*.example.test", "other.pem", "other.key", other_expires) }

    def pair(host, certificate, key, expires)
      [certificate, key].zip(SpeaksHTTPS.certificates.for(host, from: Time.now - (30 * DAY), to: expires)).to_h
    end

    # The certificates of a day that all tests use would be a problem, too.
    def status(server)
      report = StatusReport.new(ControlSocket.servers.find { |one| one[:pid] == server.pid }).to_h
      { **report, matters: report[:matters].grep_v(/for localhost expires/) }
    end
  end
end
