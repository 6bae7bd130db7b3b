# frozen_string_literal: true

module Fairlead
  # When a process that ended unexpectedly may be started again: each failure in a row doubles the delay, up to half a minute. A
  # process that has served for a while begins a new row.
  class RespawnPolicy
    LONGEST_DELAY = 30.0
    RELIABLE_AFTER = 30.0 # seconds of service
    private_constant :LONGEST_DELAY, :RELIABLE_AFTER

    # @return [Integer] how many in a row failed to boot.
    attr_reader :failed_boots
    # @return [Float] when the next may be started, on the clock of {#ended}.
    attr_reader :not_before
    attr_reader :restarts

    # @param first_delay [Float] seconds after the first failure.
    # @param first_at_once [Boolean] whether there is no delay after the first that ends although it has served.
    def initialize(first_delay, first_at_once: false)
      @first_delay = first_delay
      @first_at_once = first_at_once
      @restarts = 0
      reset
    end

    def served = @failed_boots = 0

    # @param served_for [Float, nil] seconds; nil: it failed to boot.
    # @param weight [Integer] as how many failed boots it counts.
    # @return [Float] seconds until the next may be started.
    def ended(now, served_for, weight: 1)
      @failures = 0 if served_for.to_f >= RELIABLE_AFTER
      delay = served_for && @first_at_once && @failures.zero? ? 0.0 : [@first_delay * (2**[@failures, 16].min), LONGEST_DELAY].min
      @failures += 1
      @failed_boots += weight unless served_for
      @restarts += 1
      @not_before = now + delay
      delay
    end

    # What is started next is not what has failed.
    def reset
      @failures = @failed_boots = 0
      @not_before = 0.0
    end
  end
end
