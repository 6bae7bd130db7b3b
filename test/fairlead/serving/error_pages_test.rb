# frozen_string_literal: true

require "open3"
require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # The app's pages for errors that Fairlead reports itself.
  class ErrorPagesTest < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      run lambda { |env|
        case env["PATH_INFO"]
        when "/hold" then warn("holding"); sleep
        when "/raise" then raise "no"
        when "/own" then next [503, { "content-type" => "text/plain" }, ["the app's own"]]
        end
        [200, {}, ["done"]]
      }
    RUBY
    HTML = "Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"
    LATER = "<!DOCTYPE html><title>Später</title>"
    PAGES = { "public/503.html" => "<h1>busy</h1>", "public/504.html" => LATER, "public/502.html" => "x" * 65_537,
              "public/500.html" => "of Rails" }.freeze
    private_constant :APP, :HTML, :LATER, :PAGES

    def server = shared_server(APP, "--workers", "1", "--request-timeout", "0.2", lint: false, files: PAGES)

    def test_a_request_that_takes_too_long_gets_the_page
      answer = client.get("/hold", HTML)
      assert_equal [504, "text/html; charset=utf-8", "no-store", LATER.bytesize.to_s, LATER.b],
                   [answer.status, answer["content-type"], answer["cache-control"], answer["content-length"], answer.body]
      head = client.get("/hold", HTML, head: true)
      assert_equal [504, "text/html; charset=utf-8", LATER.bytesize.to_s], [head.status, head["content-type"], head["content-length"]]
    end

    def test_who_does_not_name_html_gets_text
      [[], ["Accept: */*"], ["Accept: application/json"]].each do |fields|
        answer = client.get("/hold", *fields)
        assert_equal [504, "text/plain", "the request took too long\n"], [answer.status, answer["content-type"], answer.body]
      end
    end

    def test_http2_gets_the_same_page
      output, status = Open3.capture2("curl", "-sSi", "--http2-prior-knowledge", "-m", "60", "-H", HTML,
                                      "http://127.0.0.1:#{server.port}/hold", binmode: true)
      assert status.success?
      head, body = output.split("\r\n\r\n", 2)
      assert_match(/\AHTTP\/2 504.*^content-type: text\/html; charset=utf-8\r\ncache-control: no-store/m, head)
      assert_equal LATER.b, body
    end

    def test_a_request_that_waits_too_long_in_the_queue_gets_the_page
      with_server(APP, "--workers", "1", "--in-flight", "1", "--queue-timeout", "0.2", lint: false, files: PAGES) do |server|
        holder = client(to: server)
        holder.write("GET /hold HTTP/1.1\r\nHost: example.com\r\n\r\n")
        eventually("the app holds the only place") { server.log.include?("holding") }
        answer = client(to: server).get("/", HTML)

        assert_equal [503, "text/html; charset=utf-8", "1", "<h1>busy</h1>"],
                     [answer.status, answer["content-type"], answer["retry-after"], answer.body]
        holder.close
        server.signal(:INT)
        server.signal(:INT)
      end
    end

    def test_what_the_app_says_of_its_errors_stays
      with_server(APP, "--workers", "0", lint: false, files: PAGES) do |server|
        client = client(to: server)
        assert_equal [503, "the app's own"], client.get("/own", HTML).then { |answer| [answer.status, answer.body] }
        assert_equal [500, "Internal Server Error\n"], client.get("/raise", HTML).then { |answer| [answer.status, answer.body] }
        assert_match(/502\.html is larger than 65536 bytes/, server.log)
      end
    end
  end
end
