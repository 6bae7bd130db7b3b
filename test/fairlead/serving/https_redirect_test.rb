# frozen_string_literal: true

require_relative "../../tls_client"
require_relative "../../helper"

module Fairlead
  # The options redirect_to_https and hsts.
  class HTTPSRedirectTest < Test
    include SpeaksHTTPS

    APP = <<~RUBY
      run(lambda do |env|
        own = env["PATH_INFO"] == "/own" ? { "strict-transport-security" => "max-age=1" } : {}
        [200, own, [env["PATH_INFO"]]]
      end)
    RUBY
    HSTS = "strict-transport-security"

    def server
      shared do
        ServerProcess.new(APP, "--bind", "http://127.0.0.1:0", *FLAGS, "--redirect-to-https", "--hsts", "31536000", "--health-path", "/up",
                          "--trusted-proxies", "127.0.0.1", files: FILES)
      end
    end

    def client = HTTPClient.new((@plain ||= []).push(server.connect).last)

    def teardown
      @plain&.each(&:close)
      super
    end

    def test_a_request_without_tls_is_redirected_before_the_app
      one = client
      answer = one.get("/a/b?c=d&e")

      assert_equal [301, "https://example.com/a/b?c=d&e", nil], [answer.status, answer["location"], answer[HSTS]]
      assert_equal [301, ""], one.get("/", head: true).then { |head| [head.status, head.body] }
      assert_equal 308, one.request("POST", "/form", body: "a=b").response.status
      assert_equal "https://example.com/#{"x" * 3000}", one.get("/#{"x" * 3000}")["location"]
    end

    # What the client sends next comes together with the rest of the body.
    def test_a_request_behind_a_body_whose_request_was_redirected
      one = client
      one.write("POST /form HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\na=")
      sleep 0.1
      one.write("bcGET /next HTTP/1.1\r\nHost: a\r\n\r\n")

      assert_equal [308, "https://a/next"], [one.response.status, one.response["location"]]
    end

    def test_a_port_becomes_that_of_our_own_address
      https = URI(server.addresses.last).port

      assert_equal "https://localhost:#{https}/", client.request("GET", "/", host: "localhost:80").response["location"]
      assert_equal "https://[::1]/", client.request("GET", "/", host: "[::1]").response["location"]
    end

    def test_what_is_not_redirected
      assert_equal [200, "ok\n"], client.get("/up").then { |answer| [answer.status, answer.body] }
      assert_equal 200, client.get("/.well-known/acme-challenge/token").status
      assert_equal 200, client.request("OPTIONS", "*").response.status
    end

    def test_a_trusted_proxy_says_how_the_client_came
      answer = client.get("/", "X-Forwarded-Proto: https")

      assert_equal [200, "max-age=31536000"], [answer.status, answer[HSTS]]
      assert_equal 301, client.get("/", "X-Forwarded-Proto: http").status
    end

    def test_over_tls
      one = tls_client

      assert_equal [200, "max-age=31536000"], one.get("/").then { |answer| [answer.status, answer[HSTS]] }
      assert_equal "max-age=1", one.get("/own")[HSTS]
      assert_equal [301, nil], one.get("/", "X-Forwarded-Proto: http").then { |answer| [answer.status, answer[HSTS]] }
    end

    def test_the_value_of_the_header
      { "60" => "max-age=60", "max-age=60; includeSubDomains; preload" => "max-age=60; includeSubDomains; preload" }.each do |given, sent|
        assert_equal sent, Configuration.new(hsts: given).hsts
      end
      assert_raises(ConfigurationError) { Configuration.new(hsts: "max-age=1\r\nx: y") }
      assert_raises(ConfigurationError) { Configuration.new(hsts: "always") }
    end
  end
end
