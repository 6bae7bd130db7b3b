# frozen_string_literal: true

require_relative "../../stalls"
require_relative "apm"
require_relative "collector"

module Fairlead
  # Autoscalers find how long requests queue: from X-Request-Start, less the time in which the request arrived.
  # Covers serving/body_file.rb
  class AutoscalersTest < ApmTest
    include WithCollector
    include SpeaksHTTP
    include Stalls

    APP = <<~'RUBY'
      require "judoscale-rack"
      Judoscale.configure { |config| config.report_interval_seconds = 0.2 }
      use Judoscale::RequestMiddleware
      run lambda { |env|
        sleep 0.01 while File.exist?("gate")
        [200, {}, [env.values_at("judoscale.queue_time", "judoscale.network_time").join(" ")]]
      }
    RUBY

    RAILS = <<~'RUBY'
      require "action_controller/railtie"
      require "rails-autoscale-web"
      require "fairlead"

      class App < Rails::Application
        config.eager_load = true
        config.secret_key_base = "x" * 32
        config.logger = Logger.new(nil)
        config.hosts.clear
      end
      Judoscale.configure { |config| config.report_interval_seconds = 0.2 }
      App.initialize!
      App.routes.draw { get "pid", to: ->(_) { sleep 0.05; [200, {}, [Process.pid.to_s]] } }
      run App
    RUBY

    def test_the_time_in_the_queue_is_found
      server = with_server(APP, "--in-flight", "1", env: { "JUDOSCALE_URL" => @collector.url })
      began = monotonic
      clients, seen = while_the_gate_is_closed(server) do
        asked = Array.new(3) { client(to: server).request("GET", "/") }
        eventually("two wait") { figures_of(server, server.worker_pids.first)[:queued] == 2 }
        [asked, (monotonic - began) * 1000].tap { sleep 0.5 }
      end
      waited = clients.map { |client| client.response.body.to_i }.sort

      assert_operator waited.first, :<=, seen, "the first one did not wait for the gate"
      assert_operator waited[1], :>=, 500
      eventually("it is reported") { metrics("qt").any? { |_, value| value == waited.last } }
    end

    # What the client takes to send is no reason for more workers.
    def test_a_slow_upload_does_not_count_as_queueing
      server = with_server(APP, "--body-buffer", "1000", env: { "JUDOSCALE_URL" => @collector.url })
      [300, 4000].each do |size|
        took = duration { @queued, @arriving = upload(server, size).split.map(&:to_i) }

        assert_operator @arriving, :>=, 500
        assert_operator @queued, :<=, (took * 1000) - @arriving
      end
    end

    def test_each_worker_of_a_rails_app_reports
      server = with_server(RAILS, "-w", "2", env: { "RAILS_AUTOSCALE_URL" => @collector.url })
      eventually("each reports its queue") do
        Array.new(4) { Thread.new { server.get("/pid") } }.each(&:join)
        reporters = @collector.reports.map(&:json).select { |report| report[:metrics].any? { |metric| metric[2] == "qt" } }
        (server.worker_pids - reporters.map { |report| report[:pid] }).empty?
      end

      assert_equal ["/v3/reports"], @collector.reports.map(&:path).uniq
    end

    private

    # @return [Array] of a kind.
    def metrics(kind) = @collector.reports.flat_map { |report| report.json[:metrics] }.select { |metric| metric[2] == kind }

    # What takes its time begins once the server has the head.
    def upload(server, size)
      server.connect do |socket|
        socket.write("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: #{size}\r\n\r\n")
        assert_match(/ 100 /, socket.gets("\r\n\r\n"))
        2.times { sleep(0.25) && socket.write("x" * (size / 2)) }
        socket.read.split("\r\n\r\n", 2).last
      end
    end
  end
end
