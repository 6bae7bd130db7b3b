# frozen_string_literal: true

module Fairlead
  # How long to wait before what has ended is started again: twice as long for each failure in a row, up to half a
  # minute. What has lasted for a good while begins a new row.
  class Backoff
    LONGEST = 30.0
    GOOD_WHILE = 30.0
    private_constant :LONGEST, :GOOD_WHILE

    # @return [Integer] failures in a row.
    attr_reader :row

    # @param first [Float] seconds to wait after the first failure.
    def initialize(first)
      @first = first
      @row = 0
    end

    # @param lasted [Float] seconds for which it did what it should; 0: it never did.
    # @return [Float] seconds to wait.
    def failed(lasted)
      @row = 0 if lasted >= GOOD_WHILE
      delay = @first * (2**[@row, 16].min)
      @row += 1
      [delay, LONGEST].min
    end

    # The next failure is the first one.
    def forget = @row = 0
  end
end
