# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # How many requests of this worker stand in line for a database connection, in all pools, and for how long, shown to its
    # siblings: they do not send it more where these would wait for longer.
    module Crowd
      # In seconds, how often it is shown for how long they wait; and the share of each such time in what is shown: single
      # ones say how the processor was shared.
      INTERVAL = 0.002
      SHARE = 0.125

      @waiting = {}.compare_by_identity # pool => how many
      @lock = Thread::Mutex.new

      class << self
        # @param page [SharedPage]
        def show_in(page, slot)
          @page, @slot, @pid = page, slot, Process.pid
          @wait = @due = 0.0
        end

        # Called under the pool's lock.
        #
        # @param count [Integer] how many wait in this pool.
        def tell(pool, count)
          return unless shown? && @waiting.fetch(pool, 0) != count

          @lock.synchronize do
            count.zero? ? @waiting.delete(pool) : @waiting[pool] = count
            @page.write(@slot, :database_waiting, @waiting.each_value.sum)
            show_wait(0.0) if @waiting.empty?
          end
        end

        # One has a connection, and stood in line for it, while others do.
        #
        # @param seconds [Float] for how long.
        # @param now [Float] of the monotonic clock.
        def served(seconds, now)
          return unless now >= @due.to_f && @waiting.any? && shown?

          @due = now + INTERVAL
          @lock.synchronize { show_wait(@wait.zero? ? seconds : @wait + ((seconds - @wait) * SHARE)) }
        end

        private

        def shown? = @page && @pid == Process.pid

        def show_wait(seconds)
          @wait = seconds
          @page.write(@slot, :database_wait_us, (seconds * 1_000_000).to_i)
        end
      end
    end
  end
end
