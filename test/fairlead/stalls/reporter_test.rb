# frozen_string_literal: true

require "open3"
require_relative "../../helper"
require_relative "../../stalls"

module Fairlead
  # What is said of a request that keeps its reactor, of each kind: in the log, to subscribers, and to who asks.
  # Covers stalls/advice.rb, stalls/snapshot.rb, stalls/stall.rb
  class TellingTest < Test
    include SpeaksHTTP
    include Stalls

    NOTES = <<~RUBY
      require "active_support"
      require "active_support/notifications"
      require "sqlite3"
      def note(name, text) = File.write(name, text + "\\n", mode: "a")

      ActiveSupport::Notifications.subscribe("stall.fairlead") do |event|
        note("events", JSON.generate(event.payload))
      end
      Fairlead.on_stall { |stall| note("subscribed", stall.kind) }
    RUBY

    MORE = <<~RUBY.chomp
      when "/blocks" then Cwork.without_gvl(seconds)
      when "/listener" then (env["fairlead.stall_listener"] = ->(_) { raise "on purpose" }; Cwork.without_gvl(seconds))
      when "/lasts" then Cwork.without_gvl(seconds)
      when "/library"
        ends = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + seconds
        SQLite3::Database.new(":memory:") do |database|
          count = "WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < 50000) SELECT max(n) FROM counted"
          database.execute(count) while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < ends
        end
      when "/both" then (compute(0.15); Cwork.without_gvl(seconds))
      when "/moves"
        Cwork.without_gvl(0.2)
        Cwork.without_gvl(seconds)
      when "/child" then Async { Cwork.without_gvl(seconds) }.wait
      when "/later-child" then Async { sleep(0.01); Cwork.without_gvl(seconds) }.wait
      when "/leave" then Async { sleep(0.3); Cwork.without_gvl(seconds) }
      when "/fiber" then Enumerator.new { |values| Cwork.without_gvl(seconds); values << 1 }.next
      when "/thread" then Thread.new { Cwork.with_gvl_while(env["QUERY_STRING"], 300) }.name = "a bystander"
      when "/free"
    RUBY

    TOLD = APP.sub("FIGURES =", "#{NOTES}FIGURES =").sub('when "/free"', MORE)

    # @return [Integer] the line of the app on which a path stalls.
    def line_of(call, of: server) = File.readlines(of.path("config.ru")).index { |line| line.include?(call) } + 1

    def server = shared_server(TOLD, "-w", "2", "-e", "production")

    def test_a_call_without_the_lock
      stall = stalled("/blocks", kind: "blocked") # of no other test: one that is known to block gets a lane, and no standby

      assert_told(stall, at: line_of('"/blocks"'), says: ["blocked in C, without Ruby's lock", "Fairlead.offload"])
      assert_match(/\A.*config\.ru:\d+:in .*without_gvl/, stall["backtrace"].first)
      assert stall["standby"]
      refute stall["gvl_held"]
      assert_equal ["threads", "GET /blocks"], stall.values_at("lane", "route")
      assert_includes stall["reaction"], "its route got a lane"
    end

    def test_a_call_that_holds_the_lock
      stall = stalled("/held", kind: "stuck")

      assert_told(stall, at: line_of('"/held"'), says: ["asleep with Ruby's lock held", "No other thread can run meanwhile"])
      assert stall["gvl_held"]
    end

    def test_code_that_computes
      stall = stalled("/work", kind: "computing", seconds: 0.7) # of CPU time: a busy machine takes longer
      first = line_of("nil while")

      assert_told(stall, at: first, says: ["computing at"])
      assert_operator stall["backtrace"].grep(/config\.ru/).size, :>=, 2, "the callers too"
    end

    def test_a_gem_is_blamed_by_its_name
      stall = stalled("/library", kind: "computing", seconds: 0.7)

      assert_match(/\Asqlite3 \d/, stall["gem"])
      assert_match(%r{\Alib/sqlite3/\w+\.rb:\d+ in }, stall["at"])
      assert_equal stall["reaction"] == "Nothing else waited.", !stall["advice"].include?("Wrap it in Fairlead.offload"), "no use then"
      eventually("it is in the log") { server.log.include?(" (gem #{stall["gem"]}).") }
    end

    def test_a_stall_that_comes_after_a_wait
      assert_told(stalled("/later/free", kind: "blocked"), at: line_of('"/free"'))
      assert_told(stalled("/later/held", kind: "stuck"), at: line_of('"/held"'))
    end

    def test_one_that_computes_at_first_but_mostly_blocks_is_blamed_for_that
      assert_match(/without_gvl/, stalled("/both", kind: "blocked")["at"])
    end

    def test_one_that_blocks_in_several_places_is_blamed_for_the_longest
      assert_told stalled("/moves", kind: "blocked"), at: line_of('"/moves"') + 2
    end

    def test_a_child_task_or_another_fiber_stalls_in_the_name_of_its_request
      %w[/child /later-child /fiber].each do |path|
        stall = stalled(path, kind: "blocked")

        assert_told(stall, at: line_of("\"#{path}\""))
        assert_equal ["threads", "GET #{path}"], stall.values_at("lane", "route"), "its route is remembered"
      end
    end

    # The request that has begun it is over; the fiber that served it serves another.
    def test_a_task_that_its_request_has_left_behind_is_not_blamed_on_the_next
      server = with_server(TOLD, "-e", "production")
      client = client(to: server, timeout: 30)
      client.get("/leave?0.4")
      client.get("/sleep?0.6")
      place = "config.ru:#{line_of('"/leave"', of: server)} in "
      stall = eventually("it is told") { asked(server)["stalls"].find { |found| found["at"]&.start_with?(place) } }

      refute_equal "/sleep", stall["path"]
      refute_includes JSON.parse(client.get("/routes").body).map { |row| row["route"] }, "GET /sleep"
    end

    def test_a_thread_of_the_app_that_keeps_the_lock_from_all_is_named
      client = keep_stuck(server, "/thread")
      client.request("GET", "/") # for the worker to want the lock
      eventually("it is seen") { stuck_worker(server) }
      sleep 0.5 # a short one is not told
      release(server)
      stall = eventually("it is told") { events.find { |event| event["thread"] == "a bystander" } }

      assert_match(/with_gvl/, stall["backtrace"].first)
      2.times { assert_equal 200, client.response.status }
    end

    def test_a_listener_that_raises_keeps_no_stall_from_being_told
      assert_told stalled("/listener", kind: "blocked"), at: line_of('"/listener"'), says: []
      eventually("the error is logged") { server.log.match?(/A stall could not be reported\. .*on purpose/) }
    end

    def test_what_was_done_for_requests_that_waited_is_told
      clients = client_of_each(server)
      stuck = keep_stuck(server)
      eventually("it is seen") { figures(server)[:stall] == 2 } # else its sibling takes some as it would of any that is busy
      clients.each_value { |client| client.get("/") }
      sleep 0.5 # a short one is not told
      release(server)
      victim = stuck.response.body.to_i
      other, = clients.keys - [victim]
      stall = eventually("it is told") { events.find { |event| event["handed"].positive? && event["pid"] == victim } }

      assert_equal other, stall["receiver"]
      assert_match(/request(s)? went to process #{other}/, stall["reaction"])
    end

    # Whatever bytes a client has sent, in the target or as the request's id.
    def test_bytes_beyond_ascii_are_told_as_in_a_url
      client = client(to: server, timeout: 30)
      client.write("GET /free/~gr\xC3\xB6\xFF?0.4 HTTP/1.1\r\nHost: a\r\nX-Request-Id: \xC3\xBC\xFF\r\n\r\n".b)
      assert_equal 200, client.response.status
      shown = "/free/~gr%c3%b6%ff"
      stall = eventually("it is told") { events.find { |event| event["path"] == shown } }

      assert_equal ["%c3%bc%ff", "GET #{shown}", "threads"], stall.values_at("request_id", "route", "lane")
      assert(asked(server)["stalls"].any? { |found| found["path"] == shown })
      assert_includes fairlead("stalls").first, "GET #{shown}\n"
      routes = JSON.parse(fairlead("status", "--json", "--pid", server.pid.to_s).first).fetch("routes")
      assert_includes routes.map { |row| row["route"] }, "GET #{shown}"
    end

    timing def test_a_request_that_waits_is_no_stall_nor_is_a_short_call
      before = events.size
      %w[/sleep?0.3 /free?0.02 /cpu?0.1].each { |path| client.get(path) }
      stalled("/free", kind: "blocked")
      assert_equal before + 1, events.size, "more than the last one was told"
    end

    def test_one_that_lasts_is_told_while_it_goes_on
      client = client(to: server, timeout: 30).write("GET /lasts?12 HTTP/1.1\r\nHost: a\r\n\r\n")
      eventually("it is told") { server.log.match?(%r{GET /lasts has stalled for \d+\.\d+ s so far: blocked in C}) }

      assert client.silent?, "it goes on"
      client.response
      eventually("its end is known") { asked(server)["stalls"].any? { |stall| stall["seconds"] > 11 } }
    end

    # No Ruby runs meanwhile: it is the core that tells.
    def test_one_that_lasts_and_keeps_the_lock_from_all_is_told_while_it_goes_on
      client = client(to: server, timeout: 30).write("GET /held/~lasts\xFF?12 HTTP/1.1\r\nHost: a\r\n\r\n".b)
      eventually("it is told") do
        server.log.match?(%r{GET /held/~lasts%ff has stalled for \d+\.\d+ s so far: asleep with Ruby's lock held\.})
      end
      assert client.silent?, "it goes on"
      # Asked in this process: a command takes its time to start.
      stalls = ServerSelection.new(ControlSocket.servers, pid: server.pid).server[:stalls]
      known = stalls.find { |stall| stall[:path] == "/held/~lasts%ff" }
      assert_equal [true, "stuck", nil, []], known.values_at(:lasting, :kind, :at, :backtrace)

      client.response
      stall = eventually("its end is told") do
        asked(server)["stalls"].find { |found| found["path"] == "/held/~lasts%ff" && !found["lasting"] }
      end
      assert_operator stall["seconds"], :>, 10, "but for the time in which it waited for a processor"
      assert_match(/with_gvl/, stall["backtrace"].first)
    end

    def test_the_same_again_makes_no_other_line_but_is_counted
      folder = File.join(ROOT, "examples/cwork/lib").inspect
      app = "require \"cwork\"; run ->(_) { Cwork.without_gvl(0.4); [200, {}, []] }"
      server = with_server("$LOAD_PATH.unshift #{folder}; #{app}", "-e", "production")
      5.times { |number| server.get("/orders/#{number}") }
      stall = eventually("all are counted") do
        asked(server).fetch("stalls").find { |found| found["kind"] == "blocked" && found["count"] == 5 }
      end

      assert_equal "GET /orders/:id", stall["route"]
      assert_operator stall["total"], :>=, 1
      assert_operator stall["seconds"], :<=, stall["total"]
      assert_equal 1, server.log.scan(/ stalled for .* blocked in C/).size
    end

    def test_the_command_shows_a_table_for_people
      stalled("/free", kind: "blocked")
      output, status = fairlead("stalls")

      assert_predicate status, :success?
      assert_match(/^Fairlead in #{Regexp.escape(server.directory)}, process #{server.pid}, http:/, output)
      assert_match(%r{^ *\d+ +\d+\.\d{3} s +\d+ +\d+\.\d{3} s +blocked in C, without the lock +GET /free$}, output)
      assert_match(/config\.ru:#{line_of('"/free"')} in .*without_gvl/, output)
      assert_includes output, "Wrap it in Fairlead.offload { … }."
    end

    def test_it_is_found_by_its_process_from_any_folder
      output, status = fairlead("stalls", "--pid", server.pid.to_s, folder: "/")

      assert_predicate status, :success?
      assert_includes output, server.directory
    end

    def test_a_server_that_is_not_there_is_one_clear_line
      pid = 1 << 23 # beyond the highest (pid_max in proc_sys_kernel(5))
      output, status = fairlead("stalls", "--pid", pid.to_s)

      assert_equal 1, status.exitstatus
      assert_match(/\Afairlead: No server of this user runs as process #{pid}\. (These run:\n(  --pid .+\n)+Name one, like --pid|Start one)/, output)
      refute_match(/\.rb:\d+:in /, output)
    end

    def test_without_a_limit_nothing_is_told
      server = with_server(TOLD, "-e", "production", "--stall-report", "0")
      client(to: server).get("/free?0.2")
      client(to: server).get("/held?0.2")

      assert_empty asked(server).fetch("stalls")
      refute_includes server.log, "stalled"
    end

    def test_a_server_without_workers_tells_too
      server = with_server(TOLD, "-w", "0", "-e", "production")
      client(to: server).get("/free?0.4")

      eventually("it is told") { asked(server)["stalls"].map { |stall| stall["path"] } == ["/free"] }
      eventually("it is in the log") { server.log.include?("GET /free stalled for ") }
    end

    def test_in_development_its_backtrace_is_on_the_error_stream
      server = with_server(TOLD, "-e", "development")
      client(to: server).get("/free?0.4")

      eventually("it is there") { server.log.match?(%r{^fairlead: GET /free stalled for \d.*\n  .*config\.ru:\d+:in .*without_gvl}) }
    end

    private

    # Stalls, and awaits what the server tells of it. On a busy machine the server takes off some of the time for which the thread waits
    # for a processor afterwards.
    def stalled(path, kind:, seconds: 0.6)
      known = events.size
      took = duration { client(to: server, timeout: 60).get("#{path}?#{seconds}") }
      stall = eventually("#{path} is told") { events.drop(known).find { |event| event["path"] == path } }
      assert_equal kind, stall["kind"]
      assert_includes (seconds / 2)..(took + 3), stall["seconds"]
      eventually("subscribers know") { lines("subscribed").include?("#{kind}\n") }
      stall
    end

    def assert_told(stall, at:, says: [])
      assert_match(/\Aconfig\.ru:#{at} in /, stall["at"])
      line = eventually("it is in the log") { server.log.lines.find { |text| text.include?("GET #{stall["path"]} stalled for ") } }
      says.each { |words| assert_includes line, words }
    end

    def events = lines("events").map { |line| JSON.parse(line) }

    # Whole ones.
    def lines(name)
      path = server.path(name)
      File.exist?(path) ? File.readlines(path).select { |line| line.end_with?("\n") } : []
    end

    def asked(server)
      output, status = fairlead("stalls", "--json", "--pid", server.pid.to_s)
      assert_predicate status, :success?, output
      JSON.parse(output)
    end

    def fairlead(*arguments, folder: server.directory)
      Open3.capture2e(RbConfig.ruby, "-I", File.join(ROOT, "lib"), File.join(ROOT, "exe/fairlead"), *arguments, chdir: folder)
    end
  end
end
