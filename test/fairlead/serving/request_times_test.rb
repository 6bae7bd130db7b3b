# frozen_string_literal: true

require_relative "../../helper"
require "json"

module Fairlead
  # Where the time of requests went: in the access log, and as the shared page counts it.
  # Covers fiber_safety/request_times.rb, integrations/pool_waits.rb
  class RequestTimesTest < Test
    APP = <<~'RUBY'
      require "json"
      POOL = Fairlead::Pool.new(size: 1) { Object.new }
      LENGTH = 0.25
      LARGE = "x" * 20_000_000
      GO = Queue.new

      def cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
      def burn(seconds) = (ends = cpu + seconds; nil while cpu < ends)

      # Has a thread use something for a while, and waits until it has begun.
      def busy
        began = Queue.new
        Thread.new { yield(-> { began.push(true); sleep(LENGTH) }) }
        began.pop
      end

      KINDS = {
        "cpu" => -> { burn(LENGTH) },
        "sleep" => -> { sleep(LENGTH) },
        "blocked" => -> { Fiber.blocking { sleep(LENGTH) } },
        "offload" => -> { Fairlead.offload { sleep(LENGTH) } },
        "lock" => -> { lock = Mutex.new; busy { |use| lock.synchronize(&use) }; lock.synchronize { nil } },
        "connection" => -> { busy { |use| POOL.with { use.call } }; POOL.with { nil } },
        "socket" => -> { read, write = IO.pipe; Thread.new { sleep(LENGTH); write.write("x") }; read.read(1) },
        "tasks" => -> { Sync { |task| Array.new(2) { |n| task.async { n.zero? ? sleep(LENGTH / 4) : POOL.with { sleep(LENGTH) } } }.each(&:wait) } },
        "enumerator" => -> { Enumerator.new { |each| sleep(LENGTH); each << 1 }.next },
        "gc" => -> { ends = GC.total_time + (LENGTH * 1e9); GC.start while GC.total_time < ends },
        "gvl" => lambda do
          over = false
          others = Array.new(2) { Thread.new { nil until over } }
          burn(LENGTH / 5)
          over = true
          others.each(&:join)
        end,
        "turn" => -> { GO.pop },
        "others_turn" => -> { GO.push(true); burn(LENGTH) },
        "long" => -> { sleep(60) },
        "process" => -> { Process.wait(spawn("sleep #{LENGTH}")) }
      }

      class Slow
        def each = 8.times { |n| sleep(LENGTH / 8); yield n.to_s * 10_000 }
      end

      run lambda { |env|
        page = Fairlead.page
        case env["PATH_INFO"]
        when "/popping" then [200, {}, [GO.num_waiting.to_s]]
        when "/page" then [200, {}, [JSON.generate(times: page.times, routes: page.route_times, counters: page.counters)]]
        when %r{\A/things/} then [200, {}, ["thing"]]
        when %r{\A/kinds/(\w+)} then KINDS.fetch($1).call; [200, {}, [$1]]
        when "/stream" then [200, {}, ->(stream) { sleep(LENGTH); stream.write("streamed"); stream.close }]
        when "/parts" then [200, {}, Slow.new]
        when "/hijacked" then env["rack.hijack"].call.then { |socket| sleep(LENGTH); socket.write("hijacked"); socket.close }; [200, {}, []]
        when "/raises" then sleep(LENGTH); raise "for the test"
        when "/fails" then [500, {}, ["failed"]]
        when "/large" then [200, {}, [LARGE]]
        when "/exit" then exit!
        else [404, {}, ["not found"]]
        end
      }
    RUBY

    LENGTH = 0.25

    def test_each_answer_counts_once_by_its_code_and_route
      with_server(APP, "--workers", "1") do |server|
        2.times { |number| server.get("/things/#{number}") }
        server.get("/fails")
        server.get("/wp-login.php")
        server.exchange("nonsense\r\n\r\n")
        page = page(server)

        assert_equal({ "1xx": 0, "2xx": 2, "3xx": 0, "4xx": 2, "5xx": 1 }, page.dig(:times, :codes))
        counts = page[:routes].to_h { |row| [row[:route], row.values_at(:count, :errors)] }
        assert_equal({ "GET /things/:id" => [2, 0], "GET /fails" => [1, 1], "other" => [1, 0] }, counts)
        assert_equal 4, page.dig(:times, :service, :counts).sum
        assert_equal 4, page.dig(:times, :queue, :counts).sum
        assert_in_delta page.dig(:times, :service, :sum), page.dig(:times, :kinds).values.sum, 0.0001
      end
    end

    def test_browsers_are_told_in_development
      with_server(APP) do |server|
        timing = server.get("/kinds/sleep")["server-timing"]

        assert_match(/\Aqueue;dur=\d+\.\d{3}, .*\bsleep;dur=\d{3,}\.\d{3}/, timing)
      end
      assert Configuration.new.server_timing
      refute Configuration.new(environment: "production").server_timing
    end

    def test_counters_survive_the_end_of_a_worker
      with_server(APP, "--workers", "1") do |server|
        3.times { server.get("/things/1") }
        asked = 3
        counted = eventually("they are counted") { (asked += 1) && counts(server).then { |counts| counts if counts.min >= 3 } }
        before = server.worker_pids
        server.connect { |socket| socket.write("GET /exit HTTP/1.1\r\nHost: a\r\n\r\n") && socket.read }
        eventually("a new worker") { (server.worker_pids - before).any? }

        counts(server).zip(counted) { |now, earlier| assert_includes earlier..asked, now }
      end
    end

    # Most of each request goes where it should, and all parts make up the whole.
    def test_where_the_time_went
      expected = {
        "cpu" => "cpu", "sleep" => "sleep", "blocked" => "blocked", "offload" => "blocked", "lock" => "lock",
        "connection" => "connection", "socket" => "socket", "tasks" => "sleep", "enumerator" => "sleep", "gc" => "gc", "process" => "other"
      }
      with_server(APP, "--workers", "1", "--access-log", "json", lint: false) do |server|
        expected.each_key { |name| server.get("/kinds/#{name}") }
        lines = logged(server, expected.size)

        expected.each { |name, kind| assert_spent(kind, lines.fetch("/kinds/#{name}")) }
        sums = page(server)[:routes].to_h { |row| [row[:route].split("/").last, [row.dig(:service, :sum), row[:kinds].values.sum]] }
        sums.each { |name, (service, kinds)| assert_in_delta service, kinds, 0.0001, name }
      end
    end

    # Another request of the same thread computes from the moment at which this one could go on; or other threads compute.
    def test_waits_for_a_turn_and_for_the_lock
      with_server(APP, "--workers", "1", "--access-log", "json") do |server|
        waiting = Thread.new { server.get("/kinds/turn") }
        eventually("it waits") { server.get("/popping").body == "1" }
        server.get("/kinds/others_turn")
        waiting.join
        server.get("/kinds/gvl")
        eventually("the log") { entries(server).any? { |entry| entry["target"] == "/kinds/gvl" } }

        %w[turn gvl].each do |kind|
          entry = entries(server).find { |one| one["target"] == "/kinds/#{kind}" }
          assert_operator entry["times"][kind].to_f, :>, LENGTH / 2, entry.inspect
        end
      end
    end

    # What ends in its own way leaves the books in order.
    def test_streams_hijacked_and_failed_requests
      with_server(APP, "--workers", "1", "--access-log", "json", lint: false) do |server|
        %w[/stream /parts /raises].each { |path| server.get(path) }
        server.exchange("GET /hijacked HTTP/1.1\r\nHost: a\r\n\r\n")
        lines = logged(server, 4)

        %w[/stream /parts /raises /hijacked].each { |path| assert_spent("sleep", lines.fetch(path)) }
        page = page(server)
        assert_equal [2, 1], page.dig(:times, :codes).values_at(:"2xx", :"5xx")
        assert_equal 4, page.dig(:times, :service, :counts).sum
        assert_in_delta page.dig(:times, :service, :sum), page.dig(:times, :kinds).values.sum, 0.0001
        # Whoever comes next begins with nothing.
        server.get("/things/1")
        assert_empty logged(server, 6).fetch("/things/1")["times"].keys & %w[sleep socket lock]
      end
    end

    def test_a_cancelled_request_and_a_slow_client
      with_server(APP, "--workers", "1", "--access-log", "json", "--request-timeout", "3", lint: false) do |server|
        assert_equal "504", server.get("/kinds/long").code
        server.connect do |socket|
          socket.write("GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
          socket.wait_readable
          sleep(LENGTH) # the client takes its time
          socket.read
        end
        lines = logged(server, 2)

        assert_equal "sleep", largest(lines.fetch("/kinds/long"))
        assert_equal "write", largest(lines.fetch("/large"))
        assert_equal 1, page(server).dig(:times, :codes, :"5xx")
      end
    end

    private

    # @return [Array<Integer>] the answers of 2xx, and all requests.
    def counts(server) = page(server).then { |page| [page.dig(:times, :codes, :"2xx"), page.dig(:counters, :requests)] }

    def page(server) = JSON.parse(server.get("/page").body, symbolize_names: true)

    # @return [Hash] the access log's entries by their target.
    def logged(server, count)
      found = eventually("#{count} lines in the log") { entries(server).then { |all| all if all.size >= count } }
      found.to_h { |entry| [entry["target"], entry] }
    end

    def entries(server) = server.log.lines.grep(/\A\{.*\}\n\z/).map { |line| JSON.parse(line) }

    # Beside what a busy machine adds to each wait.
    def largest(entry) = entry["times"].except("turn", "gvl").max_by(&:last).first

    def assert_spent(kind, entry)
      times = entry["times"]

      assert_equal kind, largest(entry), entry.inspect
      assert_operator times[kind], :>, LENGTH / 2, entry.inspect
      assert_operator times.values.sum, :<=, entry["duration"] + 0.001, entry.inspect
    end
  end
end
