# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # How many requests of this worker stand in line for a database connection, in all pools, shown to its siblings: they do
    # not send it more where these would wait for longer.
    module Crowd
      @waiting = {}.compare_by_identity # pool => how many
      @lock = Thread::Mutex.new

      class << self
        # @param page [SharedPage]
        def show_in(page, slot)
          @page, @slot, @pid = page, slot, Process.pid
        end

        # Called under the pool's lock.
        #
        # @param count [Integer] how many wait in this pool.
        def tell(pool, count)
          return unless @page && @pid == Process.pid && @waiting.fetch(pool, 0) != count

          @lock.synchronize do
            count.zero? ? @waiting.delete(pool) : @waiting[pool] = count
            @page.write(@slot, :database_waiting, @waiting.each_value.sum)
          end
        end
      end
    end
  end
end
