# frozen_string_literal: true

module Bench
  # When a call must have ended, or never: what would end later is left to the next one.
  class Deadline
    # @param minutes [Numeric, nil] from now.
    def initialize(minutes = nil)
      @at = now + (minutes * 60) if minutes
    end

    # @param seconds [Numeric] that something takes, about. The first thing has room in any case: a call that does nothing
    #   would be followed by another one.
    def room_for?(seconds)
      first = !@asked
      @asked = true
      first || @at.nil? || now + seconds <= @at
    end

    # @return [Float, nil] seconds left.
    def left = @at && (@at - now)

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
