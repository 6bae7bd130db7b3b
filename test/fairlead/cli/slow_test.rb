# frozen_string_literal: true

require_relative "../../helper"
require "json"

module Fairlead
  class CLI
    # The slowest requests, what runs now, and who else is told of requests.
    # Covers cli/slow_table.rb, control/request_reports.rb, serving/running_requests.rb, serving/slow_requests.rb
    # Covers serving/wait_notes.rb, serving/wait_sampler.rb, serving/request_notification.rb
    class SlowTest < Test
      APP = <<~'RUBY'
        require "socket"
        require "active_support/notifications"
        require "active_support"
        SILENT = TCPServer.new("127.0.0.1", 0)
        TOLD = []
        Fairlead.on_request { |request| TOLD << "block #{request[:path]}" }
        ActiveSupport::Notifications.subscribe("request.fairlead") { |*, request| TOLD << "event #{request[:path]}" }
        Fairlead.on_request { |request| raise "a faulty subscriber" if request[:path] == "/faulty" }

        def asks(seconds)
          socket = TCPSocket.new("127.0.0.1", SILENT.addr[1])
          socket.wait_readable(seconds)
        ensure
          socket&.close
        end

        run lambda { |env|
          case env["PATH_INFO"]
          when "/address" then [200, {}, ["127.0.0.1:#{SILENT.addr[1]}"]]
          when "/asks" then asks(1); [200, {}, []]
          when "/hangs" then asks(600); [200, {}, []]
          when "/faulty" then asks(0.1); [200, {}, []]
          when "/told" then [200, {}, [TOLD.join("\n")]]
          else [200, {}, []]
          end
        }
      RUBY

      def server = shared_server(APP, "--workers", "2")

      def test_the_slowest_request_and_what_it_waited_for
        server.get("/asks")
        found = eventually("it is listed") { asked["slow"].find { |request| request["path"] == "/asks" } }

        assert_equal ["GET", "GET /asks", 200], found.values_at("method", "route", "status")
        assert_equal "socket", found["times"].max_by(&:last).first
        assert_in_delta found["duration"], found["times"].values.sum, 0.001
        assert_equal [server.get("/address").body], found["sockets"].map { |socket| socket["at"] }
        assert_match(/\Aconfig\.ru:\d+ in /, found["frames"].first["at"])
        assert_match(%r{waiting for a socket \d+ %\s+GET /asks$}, command("slow"))
      end

      def test_a_request_is_listed_whose_subscriber_raises
        assert_equal "200", server.get("/faulty").code
        eventually("it is listed") { asked["slow"].find { |request| request["path"] == "/faulty" } }
      end

      def test_what_runs_now_and_for_what_it_waits
        server.connect do |socket|
          socket.write("GET /hangs HTTP/1.1\r\nHost: a\r\n\r\n")
          running = eventually("the request waits") do
            asked["in_flight"].find { |request| request["path"] == "/hangs" && request["waits_for"] == "socket" }
          end

          assert_equal ["GET", "GET /hangs", "socket", server.get("/address").body], running.values_at("method", "route", "waits_for", "detail")
          assert_operator running["age"], :>=, running["waited"]
          assert_match(%r{waiting for a socket 127\.0\.0\.1:\d+  GET /hangs$}, command("slow"))
        end
      end

      def test_subscribers_are_told_of_each_request
        told = eventually("the news") do
          server.get("/hello")
          text = server.get("/told").body
          text if text.include?("event /hello")
        end

        assert_includes told, "block /hello"
      end

      def test_nothing_slow_and_nothing_running_is_an_answer_too
        answer = { folder: "/app", pid: 1, addresses: ["http://127.0.0.1:9292"] }

        assert_equal "Fairlead in /app, process 1, http://127.0.0.1:9292\n\nNo request of the last minutes was slow.\n\nNothing runs now.\n",
                     SlowTable.new(answer, { slow: [], in_flight: [] }).to_s
      end

      private

      def asked = JSON.parse(command("slow", "--json", "-n", "40"))

      def command(*arguments)
        output = StringIO.new
        status = CLI.new([*arguments, "--pid", server.pid.to_s], output:).run
        assert_equal 0, status
        output.string
      end
    end
  end
end
