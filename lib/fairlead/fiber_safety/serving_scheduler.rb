# frozen_string_literal: true

module Fairlead
  # Marks the scheduler of a reactor: in its fibers, requests share a thread.
  module ServingScheduler
  end
end
