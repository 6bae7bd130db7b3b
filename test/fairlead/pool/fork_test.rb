# frozen_string_literal: true

require_relative "helper"
return unless Process.respond_to?(:_fork)

module Fairlead
  # What the child of a fork finds.
  class PoolForkTest < PoolTest
    def test_a_child_makes_connections_of_its_own_and_closes_its_copies_of_the_parent_s
      pool, made = connections(2)
      pool.with { nil }

      assert_equal [1, [:close], 2], in_child { [pool.with(&:number), made.first.calls, pool.available] }
      refute_predicate made.first, :closed?
      assert_equal 0, pool.with(&:number)
    end

    def test_a_connection_that_can_be_discarded_is_not_closed
      quiet = Class.new(Connection) { def discard! = @calls << :discard! }
      connection = quiet.new
      pool = Pool.new(size: 1) { connection }
      pool.with { nil }

      assert_equal [:discard!], in_child { connection.calls }
    end

    def test_holders_and_waiters_of_other_threads_are_not_in_the_child
      pool, = connections(1)
      with_all_taken(pool) do
        waiter = Thread.new { pool.with { nil } }
        await_waiting(pool, 1)

        assert_equal [0, 1, 1], in_child { [pool.waiting, pool.available, pool.with(&:number)] }
        waiter.kill.join
      end
    end

    def test_a_fork_while_the_lock_is_held_does_not_lock_the_child
      pool, = connections(1)
      held = Thread::Queue.new
      over = Thread::Queue.new
      holder = Thread.new { lock(pool).synchronize { held << true; over.pop } }
      held.pop

      assert_equal 0, in_child { pool.with(&:number) }
    ensure
      over.close
      holder.join
    end

    def test_a_fork_within_a_block_leaves_both_pools_whole
      pool, = connections(1)
      result = pool.with { in_child { pool.with(&:number) } }

      assert_equal 1, result
      assert_whole(pool)
    end

    def test_the_block_in_which_a_child_was_forked_ends_well_in_the_child
      pool, = connections(1)
      reader, writer = IO.pipe
      pid = nil
      pool.with { pid = fork }
      unless pid
        writer.write([pool.available, pool.with(&:number)].join(" "))
        writer.close
        exit!(0)
      end
      writer.close

      assert_equal "1 1", reader.read
      Process.wait(pid)
    end

    def test_the_connections_can_be_kept_in_the_child
      pool, = connections(2, auto_reload_after_fork: false)
      Thread.new { pool.with { nil } }.join
      result = pool.with do |connection|
        in_child { [pool.with(&:number) == connection.number, connection.calls, pool.available] }
      end

      assert_equal [true, [], 1], result
      refute pool.auto_reload_after_fork
      assert connections(1).first.auto_reload_after_fork
    end

    def test_a_pool_is_not_kept_alive_by_being_known_for_forks
      known = Pool.const_get(:POOLS)
      before = known.keys.size
      make_and_forget(100)
      GC.start

      assert_operator known.keys.size, :<, before + 100
    end

    private

    def make_and_forget(count)
      count.times { Pool.new { nil } }
      nil
    end

    def in_child
      reader, writer = IO.pipe(binmode: true)
      pid = fork do
        reader.close
        writer.write(Marshal.dump(yield))
      rescue Exception => error
        writer.write(Marshal.dump(error.full_message))
      ensure
        writer.close
        exit!(0)
      end
      writer.close
      Marshal.load(reader.read)
    ensure
      Process.wait(pid)
    end
  end
end
