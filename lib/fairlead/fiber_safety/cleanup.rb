# frozen_string_literal: true

module Fairlead
  # What has to happen at the end of each request and each offloaded block, in its own fiber, so that it leaves nothing behind for
  # the next one. The parts that hand out such things (database connections) add their steps.
  module Cleanup
    @steps = []

    class << self
      # Runs all steps, also after one has failed.
      #
      # @yieldparam error [Exception]
      def run
        @steps.each do |step|
          step.call
        rescue Exception => error
          yield error
        end
      end

      # @param step [#call] added once.
      def add(step) = @steps |= [step]
    end
  end
end
