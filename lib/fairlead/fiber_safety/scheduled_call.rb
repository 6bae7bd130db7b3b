# frozen_string_literal: true

module Fairlead
  # A block on a scheduler's ready list. The scheduler's own fiber calls it, outside any request; it must not wait.
  class ScheduledCall
    def initialize(&block)
      @block = block
    end

    def alive? = true

    def transfer(*) = @block.call
  end
end
