# frozen_string_literal: true

module Fairlead
  class Suite
    # A test that failed, or an entry whose process ended as it should not.
    class Fault
      # What no second run can undo: memory errors, races, leaks, a fuzzer's finding, a process that a signal ended.
      CRASH = Regexp.union(/\b(Address|Leak|Memory|Thread|UndefinedBehavior)Sanitizer\b/, /\bruntime error: /, /\bValgrind\b.*\blost\b/,
                           "a process of the server crashed", "[BUG]", /died with exit status 1[3-9]\d/)
      private_constant :CRASH

      # @param text [String]
      def self.crash?(text) = text.match?(CRASH)

      attr_reader :entry, :test, :text

      # @param test [String, nil] "Class#method"; nil: the entry itself.
      # @param failure [Boolean] whether an assertion failed; else it is an error.
      # @param text [String] all that is known of it.
      # @param final [Boolean] whether it counts whatever a second run would show.
      # @param seed [String, nil] of the order in which the tests of its file ran.
      def initialize(entry, text, timing:, test: nil, failure: false, final: false, seed: nil)
        @entry = entry
        @seed = seed
        @text = text
        @timing = timing
        @test = test
        @failure = failure
        @final = final || entry.final? || Fault.crash?(text)
      end

      def failure? = @failure
      def timing? = @timing
      def final? = @final

      # @return [String] what was run, and how to run it again.
      def name = "#{entry.name}#{" (timing)" if timing?}#{" -n #{test}" if test}#{" --seed #{@seed}" if @seed}"
    end
  end
end
