# frozen_string_literal: true

require_relative "../helper"

module Fairlead
  # ActionController::Live: what its actions send and raise, and what becomes of them when nobody reads any more.
  # Covers integrations/rails/live.rb
  class LiveTest < Test
    APP = <<~'RUBY'
      require "rails"
      require "action_controller/railtie"
      require "fairlead"

      $running = Hash.new(0)
      $begun = 0
      class LiveController < ActionController::Base
        include ActionController::Live
        around_action do |_, action|
          $begun += 1
          $running[action_name] += 1
          action.call
        ensure
          response.stream.close
          $running[action_name] -= 1
        end

        def ok = response.stream.write("ok")
        def told
          event_stream
          events = SSE.new(response.stream, retry: 300, event: "tick")
          events.write({ n: 1 }, id: 1)
          events.write("two\nlines", id: 2, event: "text")
          events.write("after #{request.headers["Last-Event-ID"].inspect}")
        end
        def table = send_stream(filename: "the boats.csv") { |stream| 3.times { |n| stream.write("#{n},Argo\n"); await("row-#{n}") } }
        def broken_table = send_stream(filename: "all.csv") { |stream| stream.write("0,Argo\n"); sleep 0.05; raise "on purpose" }
        def slow = (response.stream.write("a"); sleep(1); response.stream.write("z"))
        def boom = raise(NotImplementedError, "abstract")
        def deep = deep_down(0)
        def leave = exit
        def kill = Thread.exit
        def later = (sleep(0.01); raise(NotImplementedError, "later"))
        def begun = (response.stream.write("begun"); sleep(0.05); raise(NotImplementedError, "begun"))
        def begun_kill = (response.stream.write("begun"); sleep(0.05); Thread.current.kill)
        def silent = sleep
        def feed = (event_stream; loop { response.stream.write("data: x\n\n"); sleep 0.05 })
        def prepared = (event_stream; sleep(4); loop { response.stream.write("data: x\n\n") })
        def export = send_stream(filename: "all.csv") { |stream| loop { stream.write("x" * 100_000) } }
        def cleaning
          event_stream
          sleep
        ensure
          20.times { response.stream.write("bye") rescue sleep(0.001) }
        end

        private

        def await(file) = (sleep 0.01 until File.exist?(file))
        def event_stream = response.headers["content-type"] = "text/event-stream"
        def deep_down(n) = deep_down(n + 1) + 1
      end
      class OpenController < ActionController::Base # whose stream nobody else closes
        include ActionController::Live
        def killed = (response.stream.write("begun"); sleep(0.05); Thread.current.kill)
        def cancelled = (response.stream.write("begun"); sleep(0.05); Async::Task.current.cancel)
      end
      class StatesController < ActionController::Base
        def running = render(plain: $running.values.sum.to_s)
        def number_begun = render(plain: $begun.to_s)
        def pid = render(plain: Process.pid.to_s)
      end

      class App < Rails::Application
        config.load_defaults 8.0
        config.eager_load = false
        config.consider_all_requests_local = false
        config.secret_key_base = "x" * 64
        config.hosts.clear
        config.logger = Logger.new($stdout)
        routes.append do
          LiveController.public_instance_methods(false).each { |name| get "/#{name}", to: "live##{name}" }
          get "/killed", to: "open#killed"
          get "/cancelled", to: "open#cancelled"
          get "/running", to: "states#running"
          get "/number_begun", to: "states#number_begun"
          get "/pid", to: "states#pid"
        end
      end
      App.initialize!
      run App
    RUBY

    FLAGS = ["-e", "production"].freeze

    def test_events_have_the_fields_that_sse_gives_them
      response = shared_server(APP, *FLAGS, lint: false).get("/told", "Last-Event-ID" => "7")

      assert_equal "text/event-stream", response["content-type"]
      assert_equal <<~EVENTS, response.body
        retry: 300
        event: tick
        id: 1
        data: {"n":1}

        retry: 300
        event: text
        id: 2
        data: two
        data: lines

        retry: 300
        event: tick
        data: after "7"

      EVENTS
    end

    # The next row is made once the client has the one before.
    def test_send_stream_sends_each_part_when_it_is_written
      server = shared_server(APP, *FLAGS, lint: false)
      response = Net::HTTP.start("127.0.0.1", server.port) do |http|
        http.request_get("/table") do |answer|
          rows = 0
          answer.read_body { |part| part.count("\n").times { server.write("row-#{rows}", "") and rows += 1 } }
          assert_equal 3, rows
        end
      end

      assert_equal "text/csv", response["content-type"]
      assert_equal "attachment; filename=\"the boats.csv\"; filename*=UTF-8''the%20boats.csv", response["content-disposition"]
      assert_nil response["content-length"]
    end

    def test_what_send_stream_raises_ends_its_response_only
      server = shared_server(APP, *FLAGS, lint: false)

      assert_equal "0,Argo\n", server.get("/broken_table").body
      assert_equal "ok", server.get("/ok").body
    end

    def test_what_an_action_raises_ends_that_action_only
      server = shared_server(APP, *FLAGS, lint: false)
      pid = server.get("/pid").body
      beside = Thread.new { server.get("/slow").body }
      %w[boom deep leave kill later].each { |path| assert_equal "500", server.get("/#{path}").code, path }
      %w[begun begun_kill killed cancelled].each { |path| assert_equal "begun", server.get("/#{path}").body, path }
      assert_equal "az", beside.value
      assert_equal "ok", server.get("/ok").body
      eventually("all have ended") { server.get("/running").body == "0" }
      assert_equal pid, server.get("/pid").body
    end

    %w[silent feed prepared export cleaning].each do |path|
      define_method("test_#{path}_ends_when_its_client_has_gone") do
        server = shared_server(APP, *FLAGS, "--cancel-abandoned", name: :abandoned, lint: false)
        leave(server, path)
      end

      define_method("test_#{path}_ends_when_its_time_is_up") do
        server = shared_server(APP, *FLAGS, "--request-timeout", "1.5", name: :timeout, lint: false)
        leave(server, path) { sleep 1.7 }
      end
    end

    def test_streams_without_a_client_do_not_hold_up_the_end
      with_server(APP, *FLAGS, "--request-timeout", "3", lint: false) do |server|
        before = number_begun(server)
        sockets = %w[silent prepared feed export].map { |path| ask(server, path) }
        eventually("the actions") { number_begun(server) == before + 4 }
        sleep 3.1
        sockets.each(&:close)
        assert_operator duration { server.stop }, :<, 20
      end
    end

    private

    def leave(server, path)
      before = number_begun(server)
      sockets = Array.new(3) { ask(server, path) }
      eventually("the actions") { number_begun(server) == before + 3 }
      yield if block_given?
      sockets.each(&:close)
      eventually("their end") { server.get("/running").body == "0" }
    end

    # Its own time may be up, too. Rails has loaded by then what actions need.
    def number_begun(server)
      @loaded ||= eventually("an action ends in time") { server.get("/ok").body == "ok" }
      eventually("it is known") { server.get("/number_begun").then { |response| response.body.to_i if response.code == "200" } }
    end

    def ask(server, path) = server.connect.tap { |socket| socket.write("GET /#{path} HTTP/1.1\r\nHost: localhost\r\n\r\n") }
  end
end
