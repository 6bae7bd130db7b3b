# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    class Growth
      # How often connections of a pool of one size come back while its process is at work.
      class Look
        # What share of a CPU a process must take for its own work to be what counts: how often its connections come back then
        # depends on what its siblings take, which may grow meanwhile. It keeps more connections if as large a share still
        # comes back of a second of that work: by a tenth it moves by itself.
        OWN = 0.4
        KEPT = 0.85
        private_constant :OWN, :KEPT

        # @return [Integer] connections; windows seen; and of these the last ones in which no more waited than there were.
        attr_reader :size, :windows, :few

        def initialize(size)
          @size = size
          @windows = @few = @returned = 0
          @seconds = @ran = 0.0
        end

        # @param ran [Float] for how many seconds the process ran on a CPU.
        # @return [self]
        def add(returned, seconds, ran, wanted)
          @windows += 1
          @few = wanted > @size ? 0 : @few + 1
          @returned += returned
          @seconds += seconds
          @ran += ran
          self
        end

        # @return [Float] how many come back in a second.
        def rate = @returned / @seconds

        # @return [Float] how many come back in a second of the process' own work.
        def thrift = @returned / @ran

        # @return [Boolean] whether it is mostly the process' own work on which that depends.
        def own? = @ran > @seconds * OWN

        # @param gain [Float] what share of a half more must come back of a half more connections.
        def vain?(before, gain) = rate < before.rate * (1 + (gain * (@size.fdiv(before.size) - 1)))

        # @return [Boolean] whether the process works so much longer for each than before that more are in vain.
        def dearer?(before) = thrift < before.thrift * KEPT

        # @return [Boolean] whether it works longer at all.
        def loses?(before) = own? && thrift < before.thrift

        # @param seconds [Float] that it takes to open more.
        # @return [Boolean] whether it may take that time.
        def affords?(seconds) = seconds <= [TRIFLE, SHARE * @seconds].max
      end
    end
  end
end
