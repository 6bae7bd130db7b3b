# frozen_string_literal: true

require "monitor"
require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  class MutexSleepTest < Test
    include SpeaksHTTP

    # A thread wakes the waiter and keeps the lock, so that the waiter is interrupted while he takes it again.
    APP = <<~'RUBY'
      require "monitor"
      LOCK = Monitor.new
      CONDITION = LOCK.new_cond
      WAITS, WOKEN, UNLOCK = Queue.new, Queue.new, Queue.new

      run(lambda do |env|
        case env["PATH_INFO"]
        when "/wait"
          task = Async do
            LOCK.synchronize { (WAITS << true) && CONDITION.wait }
          rescue RuntimeError => error
            error.message
          end
          WAITS.pop
          fiber = task.fiber
          thread = Thread.new { LOCK.synchronize { CONDITION.signal; WOKEN << true; UNLOCK.pop } }
          WOKEN.pop
          sleep 0.001 # by now the waiter wants the lock
          fiber.raise("interrupted")
          UNLOCK << true
          answer = [task.wait, thread.join && LOCK.synchronize { "unlocked" }]
        when "/signalled" # the waiter is interrupted as it has been woken, and its waker keeps the lock for a while
          task = Async { LOCK.synchronize { CONDITION.wait } rescue $!.class }
          LOCK.synchronize { CONDITION.signal; task.fiber.raise(IOError); sleep 0.01 }
          answer = [task.wait, LOCK.synchronize { "unlocked" }]
        when "/enumerator"
          locks = [Mutex.new, Monitor.new]
          answer = locks.map { |lock| lock.synchronize { Enumerator.new { |all| lock.synchronize { all << 1 } }.next } rescue $!.class }
          # Another one's lock is waited for, also two enumerators deep.
          lock, had = Mutex.new, Queue.new
          Async { lock.synchronize { (had << true) && sleep(0.01) } }
          had.pop
          answer << Enumerator.new { |all| all << Enumerator.new { |inner| lock.synchronize { inner << "had" } }.next }.next
          answer << locks.map { |one| one.synchronize { "unlocked" } }.uniq
        when "/timeout" then answer = LOCK.synchronize { [CONDITION.wait(0.001), Mutex.new.lock.sleep(0.001)] }
        end
        [200, {}, [answer.inspect]]
      end)
    RUBY

    def test_a_lock_that_is_taken_again_within_an_enumerator_is_a_deadlock_as_in_a_thread
      assert_equal '[ThreadError, ThreadError, "had", ["unlocked"]]', client(to: with_server(APP)).get("/enumerator").body
    end

    def test_who_is_interrupted_has_the_lock_again_and_leaves_it
      server = with_server(APP)

      assert_equal '["interrupted", "unlocked"]', client(to: server).get("/wait").body
      assert_equal '[IOError, "unlocked"]', client(to: server).get("/signalled").body
      assert_equal "[false, nil]", client(to: server).get("/timeout").body
    end
  end
end
