# frozen_string_literal: true

require "active_record"
require "async"
require_relative "../../helper"

module Fairlead
  # The lock that tests put around a connection which they share with requests.
  class RequestLockTest < Test
    def setup
      super
      Isolation.establish
      @lock = ActiveRecord::RequestLock.of(Object)
    end

    def test_an_enumerator_of_the_request_that_holds_the_lock_enters_and_another_request_waits
      order = []
      go_on = Thread::Queue.new
      Sync do |task|
        first = task.async do
          @lock.synchronize do
            order << Enumerator.new { |rows| @lock.synchronize { rows << :enumerator } }.next
            order << go_on.pop
          end
        end
        second = task.async { @lock.synchronize { order << :second } }
        go_on.push(:first)
        [first, second].each(&:wait)
      end

      assert_equal %i[enumerator first second], order
    end

    def test_a_request_that_is_interrupted_within_the_lock_leaves_it
      Sync do |task|
        holder = task.async { @lock.synchronize { sleep } }
        holder.cancel
        holder.wait

        assert_equal :free, task.with_timeout(5) { @lock.synchronize { :free } }
      end
    end
  end
end
