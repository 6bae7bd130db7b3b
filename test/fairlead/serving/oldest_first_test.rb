# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # Of requests that have begun in one thread and can go on, the oldest one does. Where the machine keeps that thread from a processor,
  # another one serves what comes then.
  # Covers serving/request_turns.rb, serving/turn.rb, active_record/waiter.rb
  class OldestFirstTest < Test
    # Requests wait at a gate. Once it is open, each computes, and waits for what has happened, five times.
    APP = <<~'RUBY'
      require "active_record"
      ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: ":memory:", max_connections: 1)
      def cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
      def burn(seconds) = (ends = cpu + seconds; nil while cpu < ends)

      READY, writer = IO.pipe
      writer.write("x")
      STARTED, STEPS, GATE = [], [], Thread::Queue.new
      THREADS = Hash.new { |threads, thread| threads[thread] = [] }

      def step(name, seconds = 0.001)
        READY.wait_readable
        work(name, seconds)
      end

      def work(name, seconds = 0.001)
        burn(seconds)
        STEPS << name
      end

      KINDS = {
        "descriptor" => ->(name) { step(name) },
        "sleep" => ->(name) { sleep 0; work(name) },
        "enumerator" => ->(name) { Enumerator.new { |parts| parts << step(name) }.next },
        "connection" => ->(name) { ActiveRecord::Base.with_connection { step(name) } },
        "yields" => ->(name) { Fiber.scheduler.yield; work(name) },
        "computes" => ->(name) { Fiber.scheduler.yield; work(name, 0.03) },
        "bursts" => ->(name) { 2.times { Fiber.scheduler.yield }; work(name, 0.01) },
        "hog" => ->(name) { 100.times { step(name, 0.02) } }
      }

      run lambda { |env|
        _, kind, name = env["PATH_INFO"].split("/")
        case kind
        when "started" then next [200, {}, [STARTED.join(" ")]]
        when "steps" then next [200, {}, [STEPS.join(" ")]]
        when "threads" then next [200, {}, [THREADS.values.map { |names| names.join(" ") }.join("\n")]]
        when "open" then GATE.close
        else
          STARTED << name
          THREADS[Thread.current] << name
          GATE.pop
          { "hog" => 1, "yields" => 50, "computes" => 20, "bursts" => 100 }.fetch(kind, 5).times { KINDS[kind].call(name) }
        end
        [200, {}, [name.to_s]]
      }
    RUBY

    # The connection is held while first a page, then a stream that came before both, waits for it.
    STREAM_APP = <<~'RUBY'
      require "active_record"
      ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: ":memory:", max_connections: 1)
      STARTED, STEPS, GATES = [], [], Hash.new { |gates, name| gates[name] = Thread::Queue.new }

      def step(name) = ActiveRecord::Base.with_connection { STEPS << name }

      run lambda { |env|
        name = env["PATH_INFO"].delete_prefix("/")
        next [200, {}, [STARTED.join(" ")]] if name == "started"
        next [200, {}, [ActiveRecord::Base.connection_pool.stat[:waiting].to_s]] if name == "waiting"
        next [200, {}, [STEPS.join(" ")]] if name == "steps"
        next GATES[name.delete_prefix("open-")].close && [200, {}, []] if name.start_with?("open-")

        STARTED << name
        case name
        when "hold" then ActiveRecord::Base.with_connection { GATES[name].pop }
        when "page" then step(name)
        when "stream" then next [200, {}, ->(stream) { stream << "x"; GATES[name].pop; step(name); stream.close }]
        end
        [200, {}, []]
      }
    RUBY

    # Exports need the only connection again and again, until a page has had it.
    EXPORT_APP = <<~'RUBY'
      require "active_record"
      ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: ":memory:", max_connections: 1)
      STARTED, PAGES = [], []

      run lambda { |env|
        name = env["PATH_INFO"].delete_prefix("/")
        case name
        when "started" then next [200, {}, [STARTED.join(" ")]]
        when "page" then ActiveRecord::Base.with_connection { PAGES << name }
        else
          STARTED << name
          700.times { PAGES.empty? && ActiveRecord::Base.with_connection { sleep 0.02 } }
        end
        [200, {}, PAGES]
      }
    RUBY

    COUNT = 40

    %w[descriptor sleep enumerator].each do |kind|
      define_method(:"test_requests_at_a_gate_end_in_the_order_of_their_arrival_after_a_#{kind}") do
        _, steps, threads = open_gate([kind] * COUNT)

        threads.each { |names| assert_oldest_first(names, steps) }
      end
    end

    # While one computes without the connection, the next one has it.
    def test_a_connection_goes_to_the_oldest_request
      started, steps = open_gate(%w[connection] * COUNT)

      started.each_cons(4) do |name, _, _, later|
        assert_operator steps.rindex(name), :<, steps.index(later), "steps: #{steps.join(" ")}"
      end
    end

    def test_a_stream_that_came_before_a_page_does_not_get_its_connection_first
      with_server(STREAM_APP, "--workers", "1", "--environment", "production", lint: false) do |server|
        waiting = ->(count) { eventually("#{count} wait for the connection") { server.get("/waiting").body == count.to_s } }
        begun = ->(name) { eventually("#{name} has begun") { list(server, "/started").include?(name) } }
        requests = %w[stream hold page].map do |name|
          request = Thread.new { server.get("/#{name}") }
          begun[name]
          request
        end
        waiting[1]
        server.get("/open-stream")
        waiting[2]
        server.get("/open-hold")
        requests.each(&:join)

        assert_equal %w[page stream], list(server, "/steps")
      end
    end

    # Otherwise they would keep it among themselves until they end.
    def test_a_request_gets_a_connection_that_older_ones_need_again_and_again
      with_server(EXPORT_APP, "--workers", "1", "--environment", "production", lint: false) do |server|
        exports = %w[first second].map { |name| Thread.new { server.get("/#{name}").body } }
        eventually("both exports have begun") { list(server, "/started").size == 2 }
        server.get("/page")

        assert_equal %w[page page], exports.map(&:value)
      end
    end

    # The watch thread takes in what comes while a reactor computes, so its selector finds nothing.
    def test_requests_that_yield_and_compute_leave_new_ones_their_time
      with_server(APP, "--workers", "1", "--environment", "production", lint: false) do |server|
        requests = Array.new(4) { |name| Thread.new { server.get("/computes/#{name}") } }
        eventually("all wait at the gate") { list(server, "/started").size == 4 }
        server.get("/open")
        looks = [0]
        looks << list(server, "/steps").size until looks.last == 80
        requests.each(&:join)

        assert_operator looks.each_cons(2).map { |before, after| after - before }.max, :<, 40, "steps at each look: #{looks}"
      end
    end

    # What yields has no turn, and goes on in each round.
    def test_requests_that_yield_leave_the_others_their_time
      started, steps = open_gate([*%w[descriptor] * 20, *%w[yields] * 20])
      last = steps.rindex { |name| started.first(20).include?(name) }

      assert_operator last, :<, 700, "steps: #{steps.join(" ")}"
    end

    # Every other round it takes no time. The others need as much as ten of its hundred bursts.
    def test_a_request_that_yields_twice_leaves_the_others_their_time
      started, steps = open_gate([*%w[descriptor] * 20, "bursts"])
      last = steps.rindex { |name| name != started.last }

      assert_operator steps[0, last].count(started.last), :<, 30, "steps: #{steps.join(" ")}"
    end

    # It computes for two seconds in all.
    def test_a_hog_lets_those_that_came_after_it_go_first
      started, steps, threads = open_gate(["hog", *%w[descriptor] * COUNT])

      threads.each { |names| assert_oldest_first(names - [started[0]], steps) }
      assert_operator steps[0, 50].count(started[0]), :>, 0, "steps of the oldest one among the first"
      assert_equal started[0], steps.last
    end

    private

    # @param kinds [Array<String>] of a request each
    # @return [Array] the names of the requests as they started, and as they made their steps; and those of each thread, as they started.
    def open_gate(kinds)
      with_server(APP, "--workers", "1", "--environment", "production", lint: false) do |server|
        requests = kinds.each_with_index.map do |kind, name|
          request = Thread.new { server.get("/#{kind}/#{name}").body }
          eventually("request #{name} waits at the gate") { list(server, "/started").size == name + 1 }
          request
        end
        started = list(server, "/started")
        server.get("/open")
        assert_equal (0...kinds.size).map(&:to_s), requests.map(&:value)
        [started, list(server, "/steps"), server.get("/threads").body.lines.map(&:split)]
      end
    end

    def assert_oldest_first(names, steps)
      assert_equal names.flat_map { |name| [name] * 5 }, steps.select { |name| names.include?(name) }
    end

    def list(server, path) = server.get(path).body.split
  end
end
