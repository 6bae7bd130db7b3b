# frozen_string_literal: true

require "active_record"
require "async"
require "tmpdir"
require_relative "../../helper"

module Fairlead
  # ActiveRecord's own pool as it is under Fairlead, by fiber: what is promised of it.
  # Covers active_record.rb, active_record/pool_patch.rb, active_record/queue_patch.rb, active_record/pool_stats.rb
  # Covers active_record/limits.rb, active_record/waiter.rb, active_record/reaping.rb
  class ActiveRecordPoolTest < Test
    class Record < ::ActiveRecord::Base
      self.abstract_class = true
    end

    class Sharded < ::ActiveRecord::Base
      self.abstract_class = true
    end

    class Vessel < Record
    end

    def setup
      super
      Isolation.establish
      @directory = Dir.mktmpdir("fairlead-")
    end

    def teardown
      # Whoever walks over all pools afterwards must not meet one that a test has discarded.
      Record.remove_connection
      Record.connection_handler.clear_all_connections!(:all)
      FileUtils.remove_entry(@directory)
      super
    end

    def test_who_waits_is_served_in_the_order_in_which_they_came
      pool = make_pool(1)
      served = []
      Sync do
        connection = pool.checkout
        tasks = Array.new(20) { |n| Async { pool.with_connection { served << n } } }
        pool.checkin(connection)
        # Who comes now stands behind them, the giver included.
        pool.with_connection { served << :giver }
        tasks.each(&:wait)
      end

      assert_equal [*0...20, :giver], served
    end

    def test_when_connections_for_the_first_of_two_groups_come_back_exactly_that_group_gets_them
      pool = make_pool(3)
      served = []
      over = false
      Sync do
        held = Array.new(3) { pool.checkout }
        tasks = Array.new(6) { |n| Async { pool.with_connection { (served << n) && (sleep(0.001) until over) } } }
        held.each { |connection| pool.checkin(connection) }
        eventually("the first are served") { served.size >= 3 }
        sleep 0.01

        assert_equal [0, 1, 2], served.sort
        over = true
        tasks.each(&:wait)
      end

      assert_equal [3, 4, 5], served.drop(3).sort
    end

    def test_where_more_wait_than_connections_may_be_opened_they_are_served_in_order
      pool = make_pool(2)
      served = []
      Sync { Array.new(6) { |n| Async { pool.with_connection { (served << n) && sleep(0.02) } } }.each(&:wait) }

      assert_operator places_moved(served), :<, 2
    end

    def test_who_could_not_open_one_and_was_served_at_once_can_wait_again_later
      pool = make_pool(2, min_connections: 2)
      go_on = Queue.new
      Sync do |task|
        first = pool.checkout
        waiter = task.async do
          pool.checkin(pool.checkout(0.2))
          go_on.pop
          pool.with_connection { :served }
        end
        pool.synchronize { pool.fairlead_waiters.assign_next(:open) }
        pool.activate
        pool.prepopulate # before it runs: there is no room for another one, but this one for it
        sleep 0.3
        second = pool.checkout
        go_on << true
        sleep 0.05
        [first, second].each { |connection| pool.checkin(connection) }

        assert_equal :served, waiter.wait
      end
    end

    def test_threads_and_fibers_stand_in_one_line
      pool = make_pool(1)
      served = Queue.new
      Sync do
        connection = pool.checkout
        waiters = Array.new(10) do |n|
          waiter = n.even? ? Thread.new { wait_and_note(pool, served, n) } : Async { wait_and_note(pool, served, n) }
          sleep 0.001 until pool.num_waiting_in_queue == n + 1
          waiter
        end
        pool.checkin(connection)
        waiters.each { |waiter| waiter.is_a?(Thread) ? waiter.join : waiter.wait }
      end

      assert_equal [*0...10], Array.new(10) { served.pop }
    end

    def test_two_thousand_wait_for_five
      pool = make_pool(5)
      begun = []
      Sync do
        tasks = Array.new(2000) { |n| Async { pool.with_connection { (begun << n) && sleep(0.0005) } } }
        tasks.each(&:wait)
      end

      assert_operator places_moved(begun), :<, 5
      assert_operator pool.connections.size, :<=, 5
    end

    def test_what_was_meant_for_a_waiter_that_is_cancelled_goes_to_the_next
      pool = make_pool(1, checkout_timeout: 30)
      took = nil
      Sync do |task|
        connection = pool.checkout
        cancelled = task.async { pool.with_connection { flunk } }
        waiter = task.async { pool.with_connection { :served } }
        pool.checkin(connection) # it is the first one's now, who has not run yet …
        cancelled.stop           # … and never will
        took = duration { assert_equal :served, waiter.wait }
      end

      assert_operator took, :<, 15
      assert_equal 0, pool.num_waiting_in_queue
    end

    def test_a_waiter_that_is_killed_leaves_the_line
      pool = make_pool(1, checkout_timeout: 10)
      connection = pool.checkout
      killed = Thread.new { pool.with_connection { flunk } }
      eventually { pool.num_waiting_in_queue == 1 }
      waiter = Thread.new { pool.with_connection { :served } }
      eventually { pool.num_waiting_in_queue == 2 }
      killed.kill.join
      pool.checkin(connection)

      assert_equal :served, waiter.value
    end

    def test_who_waits_in_a_line_that_moves_is_served_however_long_it_is
      pool = make_pool(1, checkout_timeout: 1.2)
      serve = proc { pool.with_connection { sleep(0.1) && :served } }
      Sync do |task|
        fibers = Array.new(25) { task.async(&serve) }
        threads = Array.new(5) { Thread.new(&serve) }

        assert_equal [:served] * 30, fibers.map(&:wait) + threads.map(&:value)
      end
      assert_operator ActiveRecord::PoolStats.of(pool).waits.to_h[:max], :>, 2 * 1.2
    end

    def test_all_are_told_once_a_line_stands_still_for_too_long
      pool = make_pool(1, checkout_timeout: 0.4)
      Sync do |task|
        over = false
        serve = proc { pool.with_connection { sleep 0.1 } }
        began = monotonic
        served = Array.new(6) { task.async(&serve) }
        kept = task.async { pool.with_connection { sleep 0.01 until over } }
        waits = Array.new(5) { task.async { in_vain { pool.checkout } || (monotonic - began) } }
        served.each(&:wait)
        waits.map!(&:wait)
        over = true
        kept.wait

        assert_operator waits.min, :>=, 0.6 + 0.4
        assert_operator waits.max, :<, 15
      end
    end

    # One of those who wait looks out for all, and may be cancelled. One after the other, they would take 80 s.
    def test_all_whose_time_is_over_are_told_in_time
      pool = make_pool(1, checkout_timeout: 0.4)
      waits = Sync do |task|
        connection = pool.checkout
        tasks = Array.new(200) { task.async { duration { in_vain { pool.checkout } } } }
        late = task.async { duration { in_vain { pool.checkout(0.8) } } }
        [tasks.shift, tasks.pop].each(&:stop)
        [*tasks, late].map(&:wait).tap { pool.checkin(connection) }
      end

      assert_equal 199, waits.size
      assert_operator waits.min, :>=, 0.4
      assert_operator waits.last, :>=, 0.8
      assert_operator waits.max, :<, 20
      assert pool.with_connection { true }
    end

    def test_a_thread_that_does_not_come_back_to_its_fibers_keeps_no_other_from_opening_a_connection
      pool = make_pool(3, checkout_timeout: 30)
      waits, over = Queue.new, Queue.new
      stuck = Thread.new do
        Sync do |task|
          connection = pool.checkout
          waiter = task.async { pool.with_connection { true } }
          waits << true
          Fiber.new(blocking: true) { over.pop }.resume
          pool.checkin(connection)
          waiter.wait
        end
      end
      waits.pop
      took = duration { assert Thread.new { Sync { pool.with_connection { true } } }.value }
      over << true

      assert stuck.value
      assert_operator took, :<, 15
    end

    def test_a_thousand_interrupted_waiters_cost_no_connection
      pool = make_pool(3, checkout_timeout: 30)
      random = Random.new(1)
      Sync do |task|
        1000.times.each_slice(50) do |slice|
          tasks = slice.map { task.async { pool.with_connection { sleep(random.rand / 1000) } } }
          tasks.sample(25, random:).each { |one| task.async { sleep(random.rand / 1000) && one.stop } }
          tasks.each(&:wait)
        end
      end

      assert_equal [0, 0], pool.stat.values_at(:busy, :waiting)
      assert_operator pool.connections.size, :<=, 3
    end

    def test_a_removed_connection_makes_room_for_the_oldest_waiter
      pool = make_pool(1, checkout_timeout: 10)
      Sync do |task|
        connection = pool.checkout
        waiter = task.async { pool.with_connection { |fresh| fresh } }
        pool.remove(connection)
        connection.disconnect!

        refute_same connection, waiter.wait
      end
    end

    def test_what_a_dead_fiber_held_is_reaped_for_who_needs_it
      pool = make_pool(1, checkout_timeout: 10)
      Fiber.new { FiberOwner.own_state || pool.checkout }.resume

      assert pool.with_connection { true }
      assert_equal 0, pool.stat[:dead]
    end

    def test_what_a_fiber_held_that_dies_while_others_wait_is_theirs
      pool = make_pool(1, checkout_timeout: 30)
      took = Sync do |task|
        holder = Fiber.new { FiberOwner.own_state || (pool.checkout && Fiber.yield) }
        holder.resume
        waiters = Array.new(3) { task.async { pool.with_connection { true } } }
        holder.resume
        duration { assert_equal [true] * 3, waiters.map(&:wait) }
      end

      assert_operator took, :<, 15
      assert_equal 1, pool.connections.size
    end

    def test_where_the_system_allows_no_more_threads_it_is_looked_for_later
      pool = make_pool(1, checkout_timeout: 10)
      Sync do |task|
        holder = Fiber.new { FiberOwner.own_state || (pool.checkout && Fiber.yield) }
        holder.resume
        waiter = task.async { pool.with_connection { true } }
        holder.resume
        without_more_threads { sleep 1.5 }

        assert waiter.wait
      end
    end

    # It may be held up by a server that does not answer.
    def test_no_more_than_one_thread_looks_for_what_dead_fibers_held
      pool = make_pool(2, checkout_timeout: 30)
      seen, gate, over = Queue.new, Queue.new, Queue.new
      Sync do |task|
        holders = Array.new(2) { task.async { pool.checkout && over.pop } }
        eventually("both are held") { pool.stat[:busy] == 2 }
        pool.connections.each { |one| one.define_singleton_method(:active?) { (seen << Fiber[:request]) && gate.pop || super() } }
        waiters = Array.new(2) { task.async { (Fiber[:request] = 1) && pool.with_connection { true } } }
        holders.each_with_index do |holder, number|
          over << true
          holder.wait
          eventually("it is looked for") { seen.size == 1 } if number.zero?
        end
        sleep 0.5

        assert_equal 1, seen.size
        gate.close
        waiters.each(&:wait)
      end

      assert_nil seen.pop
    end

    def test_the_one_that_wants_all_connections_goes_before_those_who_wait
      pool = make_pool(1)
      done = []
      Sync do |task|
        connection = pool.checkout
        waiters = Array.new(5) { |n| task.async { pool.with_connection { done << n } } }
        waiters << task.async do
          pool.disconnect
          done << :disconnected
        end
        pool.checkin(connection)
        waiters.each(&:wait)
      end

      assert_equal :disconnected, done.shift
      assert_operator places_moved(done), :<, 2
      assert_equal 5, done.size
    end

    def test_who_waits_while_all_are_disconnected_by_force_is_served
      pool = make_pool(1, checkout_timeout: 0.1)
      Sync do |task|
        holder = task.async { pool.checkout && sleep }
        waiters = Array.new(3) { task.async { pool.checkin(pool.checkout(30)) || :served } }
        pool.disconnect!
        took = duration { assert_equal [:served] * 3, waiters.map(&:wait) }

        assert_operator took, :<, 15
        holder.stop
      end

      assert_equal [1, 0], [pool.connections.size, pool.stat[:busy]]
    end

    def test_all_connections_can_be_had_while_others_keep_using_them
      pool = make_pool(2, checkout_timeout: 20)
      rounds = 0
      Sync do |task|
        load = Array.new(10) { task.async { 200.times { pool.with_connection { sleep 0.002 } && (rounds += 1) } } }
        sleep 0.05
        pool.disconnect

        assert_operator rounds, :<, 1500, "it had to wait until nobody else wanted any"
        load.each(&:wait)
      end

      assert_equal 2000, rounds
    end

    def test_a_pool_that_is_discarded_serves_nobody_and_a_new_one_does
      pool = make_pool(2)
      pool.with_connection { true }
      pool.discard!

      assert_predicate pool, :discarded?
      assert make_pool(2).with_connection { true }
    end

    def test_who_waits_as_the_pool_is_discarded_is_told_when_its_time_is_up
      pool = make_pool(1, checkout_timeout: 0.2)
      Sync do |task|
        pool.checkout
        waiter = task.async { pool.with_connection { true } }
        sleep 0.05
        pool.discard!
        error = assert_raises(::ActiveRecord::ConnectionTimeoutError) { waiter.wait }

        assert_same pool, error.connection_pool
      end
    end

    def test_no_more_are_opened_than_may_and_at_least_as_many_as_shall
      pool = make_pool(4, min_connections: 2)
      pool.activate
      pool.prepopulate

      assert_equal 2, pool.connections.size
      all = -> { pool.connections.size == 4 }
      Sync { Array.new(50) { Async { pool.with_connection { eventually("all are open", &all) } } }.each(&:wait) }

      assert_equal 4, pool.connections.size
    end

    def test_another_connection_is_opened_only_if_none_comes_back_soon
      pool = make_pool(5)
      Sync do
        20.times { Array.new(5) { Async { pool.with_connection { true } } }.each(&:wait) }

        assert_equal 1, pool.connections.size
        all = -> { pool.connections.size == 5 }
        Array.new(5) { Async { pool.with_connection { eventually("all are open", &all) } } }.each(&:wait)
      end
    end

    def test_a_newcomer_does_not_take_the_room_that_the_budget_grants_to_waiters
      pool = make_pool(1)
      page = SharedPage.new(1)
      budget = ActiveRecord::WorkerBudget.new(1, page, 0, nil)
      pool.define_singleton_method(:fairlead_budget) { budget }
      served = []
      Sync do
        tasks = Array.new(3) { |n| Async { pool.with_connection { served << n } } }
        page.write(0, :database_granted, 1)
        tasks << Async { pool.with_connection { served << :newcomer } }
        tasks.each(&:wait)
      end

      assert_equal [0, 1, 2, :newcomer], served
    end

    def test_an_opened_connection_gives_all_waiters_their_time_anew
      pool = make_pool(3)
      Sync do
        held = pool.checkout
        waiting = Async { pool.with_connection { nil } }
        before = pool.fairlead_waiters.deadline(pool.fairlead_waiters.oldest)
        opened = pool.send(:try_to_checkout_new_connection, assigned: true)

        assert_operator pool.fairlead_waiters.deadline(pool.fairlead_waiters.oldest), :>, before
        [held, opened].each { |connection| pool.checkin(connection) }
        waiting.wait
      end
    end

    # Whoever had joined the line of a thread that was slower would wait in it for ever.
    def test_threads_that_are_the_first_to_ask_for_the_line_get_the_same_one
      pool = make_pool(1)
      first, other = Thread.current, nil
      pool.define_singleton_method(:fairlead_monitor) do # asked for by the line that is being made
        (other = Thread.new { fairlead_waiters }).then { Thread.pass until other.stop? } if Thread.current == first && other.nil?
        super()
      end

      assert_same pool.fairlead_waiters, other.value
    end

    def test_each_role_and_shard_has_a_pool_and_a_line_of_its_own
      configuration = %i[one two].to_h { |shard| [shard, { writing: sqlite("#{shard}-w", 1), reading: sqlite("#{shard}-r", 1) }] }
      Sharded.connects_to(shards: configuration)
      names = Sync do
        Array.new(8) do |n|
          Async do
            Sharded.connected_to(role: n.even? ? :writing : :reading, shard: n < 4 ? :one : :two) do
              Sharded.with_connection { |connection| sleep(0.005) && File.basename(connection.pool.db_config.database, ".sqlite3") }
            end
          end
        end.map(&:wait)
      end

      assert_equal %w[one-w one-r] * 2 + %w[two-w two-r] * 2, names
    end

    def test_the_query_cache_is_a_requests_own
      pool = make_pool(2)
      pool.with_connection { |connection| connection.execute("CREATE TABLE vessels (name text)") }
      Sync do
        Record.cache do
          Async { Record.with_connection { |connection| refute connection.query_cache_enabled } }.wait
          Vessel.count
          Async { Record.with_connection { |connection| connection.execute("INSERT INTO vessels VALUES ('a')") } }.wait

          assert_equal 0, Vessel.count
        end

        assert_equal 1, Vessel.count
      end
    end

    def test_load_async
      before = ::ActiveRecord.async_query_executor
      ::ActiveRecord.async_query_executor = :global_thread_pool
      pool = make_pool(3)
      pool.with_connection { |connection| connection.execute("CREATE TABLE vessels (name text)") }
      Vessel.insert_all(%w[a b].map { |name| { name: } })
      names = Sync { Array.new(20) { Async { as_in_a_request { Vessel.order(:name).load_async.map(&:name) } } }.map(&:wait) }

      assert_equal [%w[a b]], names.uniq
      # What the fibers have run themselves, its threads still take from its queue, each with a connection.
      executor = ::ActiveRecord.global_thread_pool_async_query_executor
      eventually("its threads rest") { executor.completed_task_count == executor.scheduled_task_count }
      assert_equal 0, pool.stat[:busy]
    ensure
      ::ActiveRecord.async_query_executor = before
    end

    def test_a_pinned_connection_is_everybodys
      pool = make_pool(2)
      pool.pin_connection!(true)
      connections = Sync { Array.new(5) { Async { pool.with_connection { |connection| connection } } }.map(&:wait) }

      assert_equal 1, connections.uniq.size
      assert pool.unpin_connection!
      assert_equal 0, pool.stat[:busy]
    end

    def test_it_counts_how_long_was_waited_and_held_and_says_who_holds
      pool = make_pool(1, checkout_timeout: 0.05)
      told = false
      error, during = Sync do |task|
        holder = task.async { pool.with_connection { sleep(0.2).then { sleep 0.001 until told } } }
        served = task.async { pool.checkin(pool.checkout(10)) }
        waiter = task.async { pool.with_connection { flunk } }
        during = ActiveRecord::PoolStats.of(pool).to_h(backtraces: true)
        error = assert_raises(::ActiveRecord::ConnectionTimeoutError) { waiter.wait }
        told = true
        [error, during].tap { [holder, served].each(&:wait) }
      end
      stat = ActiveRecord.stat.find { |one| one[:size] == 1 && one[:timeouts] == 1 }

      assert_match(/all pooled connections were in use\. Pool "\S+" \(role writing\): 1 of 1 in use, 2 waiting; /, error.message)
      assert_match(/held by fiber \S+ for \d+\.\d+ s, now at \S*pool_test\.rb:\d+.*with_connection/, error.message)
      # No budget counts what is in a file.
      assert_match(%r{, raise max_connections in config/database\.yml, or wait longer}, error.message)
      assert_equal [1, 0, 2], during.values_at(:in_use, :idle, :waiting)
      assert(during[:holders].first[:backtrace].any? { |line| line.include?("pool_test.rb") })
      assert_equal [2, 1], [stat[:holds][:count], stat[:waits][:count]]
      assert_operator stat[:holds][:max], :>=, 0.2
      assert_operator stat[:waits][:max], :>, 0.1
    end

    private

    def make_pool(max, checkout_timeout: 5, **)
      Record.establish_connection(**sqlite("test", max, checkout_timeout:, **))
      Record.connection_pool
    end

    def sqlite(name, max, **options)
      { adapter: "sqlite3", database: File.join(@directory, "#{name}.sqlite3"), max_connections: max, reaping_frequency: nil,
        **options }
    end

    # They are called in order. The one that looks out for all may be at work before others who were called just then: as
    # many as there are connections, at most.
    def places_moved(served) = served.each_with_index.map { |n, place| (n - place).abs }.max

    def in_vain
      yield
      flunk "it has got one"
    rescue ::ActiveRecord::ConnectionTimeoutError
      nil
    end

    # Rails' executor does so.
    def as_in_a_request
      tracker = ::ActiveRecord::AsynchronousQueriesTracker.run
      yield
    ensure
      ::ActiveRecord::AsynchronousQueriesTracker.complete(tracker)
    end

    def wait_and_note(pool, served, number) = pool.with_connection { served << number }
  end
end
