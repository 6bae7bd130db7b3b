# frozen_string_literal: true

module Fairlead
  class WorkerTable
    # The place of a regular worker, whoever sits there: how those before have ended, and thus when the next may be
    # forked. A worker that ends unasked is replaced at once; if it keeps ending, later each time.
    class Seat
      # Seconds to wait after the first that could not boot, or the second that has ended.
      FIRST_DELAY = 0.25
      private_constant :FIRST_DELAY

      # @return [Integer] workers in a row that failed to boot.
      attr_reader :failed_boots
      # @return [Float] when the next may be forked.
      attr_reader :not_before
      # @return [Integer] how many have ended unasked.
      attr_reader :restarts

      def initialize
        @backoff = Backoff.new(FIRST_DELAY)
        @failed_boots = 0
        @not_before = 0.0
        @restarts = 0
      end

      # A worker serves here.
      def served
        @failed_boots = 0
      end

      # A worker has ended here that nobody told to.
      #
      # @param worker [Worker]
      def ended(worker, now)
        delay = @backoff.failed(worker.serving? ? now - worker.since : 0.0)
        # The first that ends after it has served is replaced at once.
        delay = 0.0 if worker.serving? && @backoff.row == 1
        @not_before = now + delay
        @failed_boots += worker.refused ? PATIENCE : 1 if worker.booting?
        @restarts += 1
      end

      # Other workers are wanted here: what became of those before does not count.
      def forget
        @backoff.forget
        @failed_boots = 0
        @not_before = 0.0
      end
    end
  end
end
