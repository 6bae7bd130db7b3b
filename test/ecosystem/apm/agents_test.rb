# frozen_string_literal: true

require "json"
require_relative "apm"
require_relative "collector"

module Fairlead
  # Agents of APM services in a Rails app: requests that wait at once in one process are a transaction each, with the time in the queue
  # that their proxy has told.
  class AgentsTest < ApmTest
    include WithCollector

    COUNT = 10
    # Seconds that request 1 has queued; request 2 has twice as long, and so on.
    STEP = 5
    # Seconds that a slow machine may add.
    SLOW = 60
    # The agents of which nothing is sent write a line for each transaction: its tags, its path and its milliseconds in the queue.
    APP = <<~'RUBY'
      require "action_controller/railtie"
      require "json"

      module Agent
        def self.configure = nil
        def self.observe = nil
        def self.write(**transaction) = File.write("transactions", JSON.generate(transaction) + "\n", mode: "a")
      end
      require_relative "agent"
      require "fairlead"

      class App < Rails::Application
        config.root = __dir__
        config.eager_load = true
        config.secret_key_base = "x" * 32
        config.logger = Logger.new(nil)
        config.hosts.clear
        initializer("agent", before: :load_config_initializers) { Agent.configure }
      end

      BEGUN = []
      class OrdersController < ActionController::Base
        def show
          number = Integer(params[:id], 10)
          Agent.tag("before", number)
          BEGUN << number
          sleep 0.01 until BEGUN.size == Integer(ENV.fetch("COUNT"))
          Agent.tag("after", number)
          render plain: "done"
        end
      end
      App.initialize!
      Agent.observe
      App.routes.draw { get "orders/:id", to: "orders#show" }
      run App
    RUBY

    SENTRY = <<~'RUBY'
      require "sentry-ruby"
      require "sentry-rails"

      def Agent.tag(name, number) = Sentry.set_tags(name => number)
      def Agent.configure
        Sentry.init do |config|
          config.dsn = "http://nobody@127.0.0.1:#{ENV.fetch("COLLECTOR")}/1"
          config.traces_sample_rate = 1.0
          config.sdk_logger = Logger.new(nil)
        end
      end
    RUBY

    DATADOG = <<~'RUBY'
      require "datadog"

      def Agent.tag(name, number) = Datadog::Tracing.active_span.set_metric(name, number)
      def Agent.configure
        Datadog.configure do |config|
          config.agent.host = "127.0.0.1"
          config.agent.port = ENV.fetch("COLLECTOR").to_i
          config.tracing.instrument :rails, request_queuing: true
          config.logger.instance = Logger.new(nil)
          config.crashtracking.enabled = false
          config.remote.enabled = false
          config.telemetry.enabled = false
        end
        Datadog::Tracing.before_flush { |trace| trace.tap { Agent.write_trace(trace.spans) } }
      end
      def Agent.write_trace(spans)
        request, queue = %w[rack.request http.proxy.queue].map { |name| spans.find { |span| span.name == name } }
        tags = %w[before after].to_h { |name| [name.to_sym, spans.filter_map { |span| span.get_metric(name)&.to_i }] }
        write(**tags.transform_values { |values| values.first if values.size == 1 }, path: request.get_tag("http.url"),
              queued: (request.start_time - queue.start_time) * 1000)
      end
    RUBY

    # It reports over TLS to its service only: nothing answers.
    NEW_RELIC = <<~'RUBY'
      ENV.update("NEW_RELIC_LICENSE_KEY" => "0" * 40, "NEW_RELIC_APP_NAME" => "shop", "NEW_RELIC_HOST" => "127.0.0.1",
                 "NEW_RELIC_PORT" => "1", "NEW_RELIC_LOG" => "newrelic.log")
      require "newrelic_rpm"

      def Agent.tag(name, number) = NewRelic::Agent.add_custom_attributes(name => number)
      def Agent.observe
        File.write("dispatcher", NewRelic::Agent.config[:dispatcher])
        NewRelic::Agent.subscribe(:transaction_finished) do |payload|
          attributes = payload[:attributes]
          path = attributes.agent_attributes_for(NewRelic::Agent::AttributeFilter::DST_TRANSACTION_TRACER)[:"request.uri"]
          write(**attributes.custom_attributes.slice("before", "after").transform_keys(&:to_sym), path:,
                queued: payload[:metrics]["WebFrontend/QueueTime"].total_call_time * 1000)
        end
      end
    RUBY

    # It reports once a minute.
    SCOUT = <<~'RUBY'
      ENV.update("SCOUT_MONITOR" => "true", "SCOUT_KEY" => "key", "SCOUT_NAME" => "shop", "SCOUT_LOG_FILE_PATH" => Dir.pwd,
                 "SCOUT_HOST" => "http://127.0.0.1:#{ENV.fetch("COLLECTOR")}")
      require "scout_apm"

      def Agent.tag(name, number) = ScoutApm::Context.add(name => number)
      def Agent.observe
        ScoutApm::Extensions::Config.add_transaction_callback(lambda do |payload|
          write(**payload.context.slice("before", "after").transform_keys(&:to_sym), queued: payload.queue_time_ms)
        end)
      end
    RUBY

    def test_sentry
      order_all(SENTRY)
      assert_transactions do
        @collector.reports.flat_map { |report| transactions_of(report.body) }.map do |event|
          queued = event.dig("contexts", "trace", "data", "http.server.request.time_in_queue")
          { **event["tags"].slice("before", "after"), "path" => URI(event.dig("request", "url")).path, "queued" => queued }
        end
      end
    end

    def test_datadog
      server = order_all(DATADOG)
      assert_transactions { written_by(server) }
      eventually("all are reported", within: SLOW) do
        @collector.reports.sum { |report| report.path == "/v0.4/traces" ? report.headers["x-datadog-trace-count"].to_i : 0 } == COUNT
      end
    end

    def test_new_relic
      server = order_all(NEW_RELIC)
      assert_transactions { written_by(server) }
      assert_equal "falcon", File.read(server.path("dispatcher")) # it then measures fibers
    end

    def test_scout
      server = order_all(SCOUT)
      assert_transactions(path: false) { written_by(server) }
    end

    private

    # Sends all requests at once; none is answered before all have begun.
    def order_all(agent)
      server = with_server(APP, "-w", "1", files: { "agent.rb" => agent }, timeout: 300,
                           env: { "COLLECTOR" => @collector.port.to_s, "COUNT" => COUNT.to_s })
      now = Time.now.to_f
      answers = (1..COUNT).map do |number|
        Thread.new { server.get("/orders/#{number}", "X-Request-Start" => format("t=%.3f", now - (number * STEP))) }
      end.map(&:value)

      assert_equal ["200"] * COUNT, answers.map(&:code), server.end_of_log
      server
    end

    # @yieldreturn [Array<Hash>] the transactions so far.
    def assert_transactions(path: true)
      found = eventually("all transactions are there", within: SLOW) { yield.then { |all| all if all.size >= COUNT } }

      assert_equal (1..COUNT).to_a, found.map { |one| one["before"] }.sort
      found.each do |one|
        number = one["before"]

        assert_equal number, one["after"], one.to_s
        assert_equal "/orders/#{number}", one["path"], one.to_s if path
        assert_includes ((number * STEP * 1000) - 1)..(((number * STEP) + SLOW) * 1000), one["queued"], one.to_s
      end
    end

    def written_by(server)
      path = server.path("transactions")
      File.exist?(path) ? File.readlines(path).grep(/\n\z/).map { |line| JSON.parse(line) } : []
    end

    # Of an envelope of Sentry's: lines of JSON, each event behind its header.
    def transactions_of(envelope)
      envelope.lines.drop(1).each_slice(2).filter_map { |header, event| JSON.parse(event) if JSON.parse(header)["type"] == "transaction" }
    end
  end
end
