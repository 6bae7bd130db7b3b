# frozen_string_literal: true

require_relative "../../../helper"
require_relative "../../../stalls"

module Fairlead
  # A reactor that blocks without Ruby's lock, or computes for long: another thread of the same worker leads.
  # Covers serving/reactor.rb, serving/reactor_group.rb
  class StandbyTest < Test
    include SpeaksHTTP
    include Stalls

    def server = @server || shared_server(APP)

    # Others are served while the first ones block; and with nothing else at work, within so many seconds.
    { "a_standby_serves_while_the_reactor_blocks_without_the_lock" => ["/free", 0.05],
      "also_when_the_request_has_waited_before_it_blocks" => ["/later/free", 0.05],
      "a_second_standby_serves_while_two_reactors_block" => ["/free", 0.05, 2],
      "more_standbys_come_when_more_block" => ["/free", 0.05, 6],
      "a_standby_shares_the_lock_with_a_request_that_computes_for_long" => ["/cpu", 0.3],
      "also_when_it_has_waited_before" => ["/later/cpu", 0.3],
      "many_short_calls_are_as_bad_as_a_long_one" => ["/many", 0.2] }.each do |name, (path, within, times)|
      define_method("test_#{name}") do
        # The request waits first: a reactor that leads since an earlier test would go on to lead, and no other would be counted.
        @server = with_server(APP) if path.start_with?("/later")
        assert_served_beside("#{path}/gate", times: times || 1)
      end

      timing define_method("test_#{name}_soon") {
        assert_median_below(within, runs: 3) { seconds_beside(path, times: times || 1) }
      }
    end

    def test_of_more_that_block_at_once_than_there_are_reactors_all_are_answered
      with_server(APP, "-w", "1") do |server|
        paths = Array.new(14) { "/gate/~#{new_word}" } # of routes that nobody knows
        blocked = while_the_gate_is_closed(server) do
          clients = paths.map { |path| client(to: server).write("GET #{path} HTTP/1.1\r\nHost: a\r\n\r\n") }
          eventually("there are as many as may be") { reactors(server) == 12 }
          sleep 0.3
          assert_equal 12, reactors(server)
          clients
        end
        blocked.each { |client| assert_equal 200, client.response.status }
      end
    end

    # It looks five hundred times a second while a request runs.
    def test_the_watch_thread_sleeps_while_the_worker_is_idle
      with_server(APP, "-w", "1") do |server|
        assert_equal "200", server.get("/sleep?0.1").code
        eventually("it is calm") { switches(server, 0.5) < 50 }
        assert_operator switches(server, 2), :<, 50
      end
    end

    # One of the two may have come to lead.
    timing def test_one_that_stands_by_sleeps_while_nothing_stalls
      with_server(APP, "-w", "1") do |server|
        one = client(to: server)
        before = switches_of(server, "fairlead reac")
        100.times { %w[/ /sleep?0.001].each { |path| one.get(path) } }
        switches = switches_of(server, "fairlead reac").zip(before).map { |pair| pair.reduce(:-) }
        assert_operator switches.min, :<, 20, "for 200 requests"
      end
    end

    # Slices of six that compute would make some 90 ms each time that the lock is wanted: twice a request.
    timing def test_beside_several_that_compute_the_lock_is_had_before_their_slices_end
      hogs = Array.new(6) { stall(server, "/cpu", 1.5) }
      assert_median_below(0.12) { duration { assert_equal "200", server.get("/sleep?0.01").code } }
      hogs.each { |client| assert_equal 200, client.response.status }
    end

    # Else they would all be at work at once, the later ones first, and the early ones late.
    timing def test_where_every_request_computes_for_as_long_they_are_served_in_order
      with_server(APP, "-w", "1") do |server|
        clients = Array.new(6) { client(to: server) }
        # The first ones show what is ordinary.
        passed = Array.new(5) do
          before = figures(server)[:standbys]
          clients.each { |client| client.write("GET /work?0.08 HTTP/1.1\r\nHost: a\r\n\r\n") }
          clients.each { |client| assert_equal 200, client.response.status }
          figures(server)[:standbys] - before
        end
        assert_includes 0..2, passed.last, "passed the lead: #{passed.inspect}"
      end
    end

    # Nobody can serve them as they come: the watch thread reads them, and then another reactor has the lead. If a busy
    # machine has it go on to a third, that one may be quicker than the second is with what it has just taken.
    def test_a_standby_serves_in_the_order_in_which_requests_came
      with_server(APP) do |server|
        clients = Array.new(10) { client(to: server).tap { |client| assert_equal 200, client.get("/").status } }
        before = figures(server)[:standbys]
        blocked = while_the_gate_is_closed(server) do
          keep_stuck(server, "/kept/gate").tap do
            clients.shuffle.each_with_index { |client, number| client.request("GET", "/", "X-Number: #{number}") }
            eventually("all ten wait") { figures_of(server, server.worker_pids.first)[:queued] == 10 }
            release(server)
            clients.each { |client| assert_equal 200, client.response.status }
          end
        end
        assert_equal 200, blocked.response.status
        passed = figures(server)[:standbys] - before
        assert_in_order begun(server).last(10), but_for: [passed - 1, 0].max
      end
    end

    timing def test_a_stall_after_seconds_of_calm_is_noticed_though_no_request_has_come_meanwhile
      assert_median_below(0.05, runs: 3) do
        FileUtils.rm_f(server.path("begun-now"))
        blocked = stall(server, "/much-later/free", 0.4)
        eventually("it blocks") { File.exist?(server.path("begun-now")) }
        slowest(server).tap { blocked.response }
      end
    end

    # A busy machine may have another one lead before the call that blocks begins.
    timing def test_what_sleeps_on_the_thread_that_blocks_ends_there
      sleepers = Array.new(5) { stall(server, "/sleep", 0.4) }
      blocked = stall(server, "/free", 0.8)
      asleep = sleepers.select { |sleeper| sleeper.silent?(0) }
      refute_equal meanwhile = threads(server.get("/")), blocking = threads(blocked.response)
      ends = sleepers.to_h { |sleeper| [sleeper, threads(sleeper.response)] }
      assert_equal [1], [blocking, meanwhile, *ends.values].map { |threads| threads.uniq.size }.uniq
      assert_includes ends.values_at(*asleep), blocking, "none of them slept on the thread that blocked"
    end

    # One after the other, and all at once.
    timing def test_one_reactor_serves_again_when_the_stall_is_over
      clients = Array.new(20) { client(to: server) }
      stall(server, "/free", 0.1).response
      before = figures(server)[:standbys]
      served = clients.map { |client| threads(client.get("/")) }
      clients.each { |client| client.request("GET", "/sleep?0.02") }
      served.concat(clients.map { |client| threads(client.response) })
      assert_equal [1, before], [served.flatten.uniq.size, figures(server)[:standbys]], "threads that served, how often the lead was passed"
    end

    def test_requests_that_wait_go_on_beside_one_that_blocks
      sleepers = Array.new(20) { client.write("GET /sleep?0.1 HTTP/1.1\r\nHost: a\r\n\r\n") }
      took = duration do
        stall(server, "/free", 0.4).response
        sleepers.each { |sleeper| assert_equal 200, sleeper.response.status }
      end
      assert_operator took, :<, 10
    end

    # Responses to very short requests leave together: but not with one that is not short.
    def test_no_response_waits_for_a_request_that_blocks_after_it
      with_server(APP, "-w", "1", "--queue-target", "0") do |server|
        %w[/gate /kept].each do |path|
          crowd = Array.new(150) { client(to: server) }
          working, blocking = nil
          while_the_gate_is_closed(server) do
            working = client(to: server).write("GET /cpu?0.05 HTTP/1.1\r\nHost: a\r\n\r\n")
            crowd.each { |client| client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n") } # taken at one go after it
            blocking = client(to: server).write("GET #{path}?kept-#{new_word} HTTP/1.1\r\nHost: a\r\n\r\n")
            crowd.each { |client| assert_equal 200, client.response.status }
            eventually("it holds the lock") { path == "/gate" || release(server).any? }
          end
          [working, blocking].each { |client| assert_equal 200, client.response.status }
        end
      end
    end

    def test_reactors_that_nobody_needs_any_more_end
      quick = "require \"fairlead/serving/server\"\nFairlead::Reactor.send(:remove_const, :SURPLUS_CHECK)\nFairlead::Reactor.const_set(:SURPLUS_CHECK, 0.2)\n"
      threads = "when \"/threads\" then return [200, {}, [Thread.list.map(&:name).grep(/reactor/).size.to_s]]\n  when \"/free\""
      with_server(quick + APP.sub("when \"/free\"", threads)) do |server|
        worker = server.worker_pids
        4.times do
          blocked = while_the_gate_is_closed(server) do
            clients = Array.new(8) { stall(server, "/gate", 0) }
            clients.tap { assert_operator server.get("/threads").body.to_i, :>, 3 }
          end
          blocked.each { |client| assert_equal 200, client.response.status }
          eventually("two stand by") { server.get("/threads").body == "2" }
        end
        assert_equal worker, server.worker_pids, "the worker's own thread stays"
      end
    end

    # As in a container whose processes are bounded.
    def test_where_there_are_no_more_threads_the_standbys_that_there_are_serve
      refusal = <<~RUBY
        Thread.singleton_class.prepend(Module.new do
          def new(...)
            refused = File.exist?("no-more") && caller_locations(1, 6).any? { |caller| caller.path.end_with?("fiber_safety/bare_thread.rb") }
            refused ? raise(ThreadError, "can't create Thread: Resource temporarily unavailable") : super
          end
        end)
      RUBY
      with_server(refusal + APP) do |server|
        File.write(server.path("no-more"), "")
        blocked = Array.new(2) { stall(server, "/free", 1) } # two leave nobody to stand by
        4.times { assert_equal "200", server.get("/").code }
        blocked.each { |client| assert_equal 200, client.response.status }
        assert_equal 3, reactors(server), "as at the start"
        FileUtils.rm(server.path("no-more"))
        eventually("there are more where there may be") do
          blocked = Array.new(4) { stall(server, "/free", 1) }
          reactors(server).tap { blocked.each { |client| assert_equal 200, client.response.status } } > 3
        end
      end
    end

    def test_threads_that_an_app_starts_have_the_usual_priority
      app = "run ->(env) { [200, {}, [[Thread.current.priority, Thread.new { Thread.current.priority }.value].inspect]] }"
      with_server(app) { |server| assert_equal "[-3, 0]", server.get("/").body }
    end

    private

    # The first is the main thread. The kernel cuts their names.
    def reactors(server) = 1 + of_tasks(server, "comm").count { |name| name.start_with?("fairlead reac") }

    # In which a request began and ended.
    def threads(response) = response["x-threads"].split

    # How often any thread of the worker has gone to sleep, in so many seconds.
    def switches(server, seconds)
      before = switches_of(server).sum
      sleep(seconds)
      switches_of(server).sum - before
    end

    # Of each of the worker's threads whose name begins so.
    def switches_of(server, name = "")
      statuses = of_tasks(server, "status").select { |status| status.start_with?("Name:\t#{name}") }
      statuses.map { |status| status[/^voluntary_ctxt_switches:\s+(\d+)/, 1].to_i }
    end

    # What the kernel says of each of the worker's threads.
    def of_tasks(server, file)
      Dir["/proc/#{server.worker_pids.first}/task/*/#{file}"].filter_map do |path|
        File.read(path)
      rescue Errno::ENOENT, Errno::ESRCH
        nil # it has ended
      end
    end

    # One worker: only a standby can have served.
    def assert_served_beside(path, times:)
      before = figures(server)[:standbys]
      blocked = while_the_gate_is_closed(server) do
        Array.new(times) { stall(server, path, 0) }.tap { 5.times { assert_equal "200", server.get("/").code } }
      end
      blocked.each { |client| assert_equal 200, client.response.status }
      eventually("it is counted") { figures(server)[:standbys] > before }
    end

    # @return [Float] what the slowest of some requests takes beside those that block.
    def seconds_beside(path, times:)
      blocked = Array.new(times) { stall(server, path, 0.8) }
      sleep 0.02
      took = slowest(server)
      assert blocked.all? { |client| client.silent?(0) }, "they have waited for it"
      blocked.each { |client| assert_equal 200, client.response.status }
      took
    end
  end
end
