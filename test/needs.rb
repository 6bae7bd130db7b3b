# frozen_string_literal: true

require_relative "suite/fault"

module Fairlead
  # One-line declarations in test classes, by which bin/test chooses what to run. It finds them in the text of a file, and
  # they hold for the whole file.
  #
  #   class QueriesTest < Test
  #     needs :database          # PostgreSQL, MariaDB or Redis; also :browser, and :machine: bin/test runs it alone
  #
  #     timing def test_a_query_is_cancelled_within_50_ms
  #
  # A test declared with `timing` promises something about time: bin/test runs it alone, after all others. It is measured three
  # times, and the median must hold: what two of its runs say counts.
  module Needs
    # Runs a promise about time until two runs agree.
    module Median
      def run
        return super unless self.class.timing?(name)

        results = []
        results << self.class.new(name).run_once until decided?(results)
        results.last
      end

      def run_once = Minitest::Test.instance_method(:run).bind_call(self)

      private

      # What is skipped or crashes is so whatever others say.
      def decided?(results)
        last = results.last
        last && ((last.skipped? && results.one?) || Suite::Fault.crash?(last.to_s) || results.count { |one| one.passed? == last.passed? } == 2)
      end
    end

    def self.extended(tests) = tests.include(Median)

    def needs(*what)
      return unless what.include?(:database)

      define_method(:before_setup) do
        super()
        flunk "No databases: run bin/test FILE, or set TEST_DATABASE_URL … (bin/services url)" unless ENV["TEST_DATABASE_URL"]
      end
    end

    # @param tests [Array<Symbol>] their names; none: all of the class.
    def timing(*tests) = (@timing = tests.empty? ? :all : [*@timing, *tests])

    def timing?(test) = @timing == :all || !!@timing&.include?(test.to_sym)

    # FAIRLEAD_TIMING=only selects the promises about time, FAIRLEAD_TIMING=no the others.
    def runnable_methods
      wanted = ENV.fetch("FAIRLEAD_TIMING", nil)
      return super if wanted.nil?

      timing, others = super.partition { |test| timing?(test) }
      wanted == "only" ? timing : others
    end
  end
end
