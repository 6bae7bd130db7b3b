# frozen_string_literal: true

require "json"
require_relative "apm"
require_relative "../../http_client"

module Fairlead
  # Traces of OpenTelemetry, with its SDK and its instrumentations of Rack, Rails, pg and Net::HTTP.
  # Covers integrations/open_telemetry_context.rb, integrations/server_span.rb
  class OpenTelemetryTest < ApmTest
    needs :database

    # Each span is a line of JSON in a file, written before `finish` returns.
    SDK = <<~RUBY
      $LOAD_PATH.unshift #{File.join(ROOT, "examples/cwork/lib").inspect}
      require "cwork"
      require "json"
      require "net/http"
      require "opentelemetry-sdk"
      require "opentelemetry-instrumentation-net_http"
      require "opentelemetry-instrumentation-rack"

      class SpanFile
        def export(spans, timeout: nil)
          lines = spans.map do |span|
            JSON.generate(
              name: span.name, kind: span.kind, pid: Process.pid, id: span.span_id.unpack1("H*"), trace: span.trace_id.unpack1("H*"),
              parent: span.parent_span_id.unpack1("H*"), began: span.start_timestamp / 1e9, ended: span.end_timestamp / 1e9,
              attributes: span.attributes,
              events: span.events.to_a.map { |event| { name: event.name, at: event.timestamp / 1e9, attributes: event.attributes } }
            )
          end
          File.write("spans", lines.map { |line| line + "\\n" }.join, mode: "a")
          OpenTelemetry::SDK::Trace::Export::SUCCESS
        end

        def force_flush(timeout: nil) = OpenTelemetry::SDK::Trace::Export::SUCCESS
        def shutdown(timeout: nil) = OpenTelemetry::SDK::Trace::Export::SUCCESS
      end

      PROCESSOR = OpenTelemetry::SDK::Trace::Export.const_get(ENV.fetch("PROCESSOR", "SimpleSpanProcessor"))
      CONFIGURE = lambda do
        OpenTelemetry::SDK.configure do |config|
          config.service_name = "test"
          config.add_span_processor(PROCESSOR.new(SpanFile.new))
          config.use_all
        end
      end
      TRACER = OpenTelemetry.tracer_provider.tracer("app")
    RUBY

    RACK = <<~'RUBY'
      CONFIGURE.call

      def span(name, &) = TRACER.in_span(name, &)

      use(*OpenTelemetry::Instrumentation::Rack::Instrumentation.instance.middleware_args)
      run lambda { |env|
        n = env["QUERY_STRING"]
        case env["PATH_INFO"]
        when "/leaf" then sleep 0.02
        when "/block" then Cwork.without_gvl(0.2)
        when "/block-and-wait"
          Cwork.without_gvl(0.2)
          sleep 0.3
        when "/compute"
          limit = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + 0.6 # of a processor, however busy the machine is
          nil while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < limit
        when "/thread" then Thread.new { span("thread #{n}") {} }.join
        else
          sleep 0.01
          late = nil
          span("outer #{n}") do
            sleep 0.02
            Async { sleep 0.02; span("task #{n}") { sleep 0.02 } }.wait
            Enumerator.new { |items| span("enumerated #{n}") { sleep 0.01 }; items << 1 }.next
            Fiber.schedule { sleep 0.01; span("scheduled #{n}") { sleep 0.005 } }
            Fairlead.offload { span("offloaded #{n}") { sleep 0.02 } }
            Net::HTTP.get(URI("http://#{env["HTTP_HOST"]}/leaf?#{n}"))
            late = Async { sleep 0.02; span("late #{n}") {} }
          end
          late.wait
        end
        [200, {}, ["done"]]
      }
    RUBY

    RAILS = <<~'RUBY'
      require "pg"
      require "opentelemetry-instrumentation-pg"
      require "opentelemetry-instrumentation-rails"
      require "action_controller/railtie"
      require "active_record/railtie"
      require "fairlead"

      class App < Rails::Application
        config.eager_load = true
        config.secret_key_base = "x" * 32
        config.logger = Logger.new(nil)
        config.hosts.clear
        initializer("traces", before: :load_config_initializers) { CONFIGURE.call }
      end

      class OrdersController < ActionController::Base
        def show
          n = Integer(params[:id], 10)
          query("SELECT 1 AS slow_#{n} FROM pg_sleep(0.05)")
          TRACER.in_span("child #{n}") { Async { query("SELECT 1 AS quick_#{n}") }.wait }
          render plain: n.to_s
        end

        private

        def query(sql) = ActiveRecord::Base.with_connection { |connection| connection.select_value(sql) }
      end
      ENV["DATABASE_URL"] = ENV.fetch("TEST_DATABASE_URL")
      App.initialize!
      App.routes.draw { get "orders/:id", to: "orders#show" }
      run App
    RUBY

    COUNT = 50

    def test_spans_of_fifty_requests_that_wait_have_their_parents
      server = with_server(SDK + RACK, "-w", "2")
      get_all(server, (1..COUNT).map { |n| "/?#{n}" })
      traces = spans(server, COUNT * 10).group_by { |span| span[:trace] }

      assert_equal (1..COUNT).map { |n| trace_id(n) }, traces.keys.sort
      (1..COUNT).each { |n| assert_equal expected_tree(n), tree(traces[trace_id(n)]), "trace #{n}" }
    end

    def test_a_thread_begins_without_a_context
      server = with_server(SDK + RACK)
      get_all(server, ["/thread?1"])
      thread, request = spans(server, 2).partition { |span| span[:name] == "thread 1" }.map(&:first)

      assert_equal trace_id(1), request[:trace]
      refute_equal trace_id(1), thread[:trace]
    end

    def test_a_request_begins_with_its_first_byte_and_knows_how_long_it_queued
      server = with_server(SDK + RACK)
      socket = server.connect
      socket.write("GET /leaf HTTP/1.1\r\nHost: test\r\nConnection: close\r\n")
      sleep 1.5
      sent = Time.now.to_f
      socket.write("\r\n")
      socket.read
      span = spans(server, 1).first
      queued = span[:attributes][:"fairlead.queue_time"]

      assert_operator queued, :>=, 0.3
      assert_operator span[:began], :<, sent - 0.2
      assert_operator span[:ended] - span[:began], :>=, queued + 0.019
    ensure
      socket&.close
    end

    # Whether the report comes while the request runs, or the request ends first.
    def test_stalls_are_events_of_the_request_that_stalled
      server = with_server(SDK + RACK)
      { "/block" => "blocked", "/block-and-wait" => "blocked", "/compute" => "computing" }.each do |path, kind|
        File.write(server.path("spans"), "")
        get_all(server, [path, "/leaf"])
        stalls = spans(server, 2).to_h { |span| [span[:attributes][:"url.path"], span[:events].select { |event| event[:name] == "fairlead.stall" }] }
        event = stalls[path].first

        assert_equal [1, 0], [stalls[path].size, stalls["/leaf"].size], path
        assert_equal kind, event.dig(:attributes, :"fairlead.stall.kind")
        assert_operator event.dig(:attributes, :"fairlead.stall.seconds"), :>=, 0.1
        assert_match(/config\.ru/, event.dig(:attributes, :"code.stacktrace"))
      end
    end

    def test_each_worker_exports_what_it_has_collected
      server = with_server(SDK + RACK + "at_exit { OpenTelemetry.tracer_provider.shutdown }", "-w", "2", env: { "PROCESSOR" => "BatchSpanProcessor" })
      get_all(server, (1..COUNT).map { |n| "/leaf?#{n}" })
      workers = server.worker_pids
      server.stop
      found = spans(server, COUNT)

      assert_equal (1..COUNT).map { |n| trace_id(n) }, found.map { |span| span[:trace] }.sort
      assert_empty found.map { |span| span[:pid] } - workers
    end

    def test_queries_of_rails_belong_to_their_requests
      server = with_server(SDK + RAILS)
      get_all(server, (1..COUNT).map { |n| "/orders/#{n}" })
      traces = spans(server) { |found| found.count { |span| span[:kind] == "server" } == COUNT }.group_by { |span| span[:trace] }

      (1..COUNT).each do |n|
        trace = traces.fetch(trace_id(n))
        names = trace.to_h { |span| [span[:id], span[:name]] }

        assert_equal "GET /orders/:id", names[query_of(trace, "slow_#{n}")[:parent]], trace.to_s
        assert_equal "child #{n}", names[query_of(trace, "quick_#{n}")[:parent]], trace.to_s
      end
    end

    private

    # Sends all at once, each in a trace of its own, and awaits the answers.
    def get_all(server, paths)
      sockets = paths.map do |path|
        n = path[/\d+\z/].to_i
        server.connect.tap do |socket|
          socket.write("GET #{path} HTTP/1.1\r\nHost: 127.0.0.1:#{server.port}\r\nTraceparent: 00-#{trace_id(n)}-#{format("%016x", n + 1)}-01\r\n\r\n")
        end
      end
      sockets.each { |socket| assert_equal 200, HTTPClient.new(socket, timeout: 60).response.status, server.end_of_log }
    ensure
      sockets&.each(&:close)
    end

    # @return [Hash] the span whose statement ends with this name.
    def query_of(trace, name)
      trace.find { |span| span[:attributes].to_h.values.any? { |value| value.to_s.match?(/\b#{name}\b/) } } || flunk("no #{name}: #{trace}")
    end

    def trace_id(number) = format("%032x", number + 1_000_000)

    # @return [Array<Hash>] once there are so many.
    def spans(server, count = nil)
      found = nil
      eventually("#{count} spans") do
        lines = File.exist?(server.path("spans")) ? File.readlines(server.path("spans")) : []
        found = lines.grep(/\n\z/).map { |line| JSON.parse(line, symbolize_names: true) }
        block_given? ? yield(found) : found.size >= count
      end
      assert_equal count, found.size if count
      found
    end

    # @return [Hash] the names of spans, with those of their children.
    def tree(spans, parent = nil)
      ids = spans.map { |span| span[:id] }
      children = spans.select { |span| parent ? span[:parent] == parent : !ids.include?(span[:parent]) }
      children.sort_by { |span| span[:name] }.to_h { |span| ["#{span[:kind]} #{span[:name]}", tree(spans, span[:id])] }
    end

    def expected_tree(number)
      inner = %w[enumerated late offloaded scheduled task].to_h { |name| ["internal #{name} #{number}", {}] }
      { "server GET" => { "internal outer #{number}" => { "client GET" => { "server GET" => {} }, "internal connect" => {}, **inner } } }
    end
  end
end
