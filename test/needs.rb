# frozen_string_literal: true

module Fairlead
  # One-line declarations in test classes, by which bin/test chooses what to run. It finds them in the text of a file, and
  # they hold for the whole file.
  #
  #   class QueriesTest < Test
  #     needs :database          # PostgreSQL, MariaDB or Redis; also :browser
  #
  #     timing def test_a_query_is_cancelled_within_50_ms
  #
  # A test declared with `timing` promises something about time: bin/test runs it alone, after all others.
  module Needs
    def needs(*what)
      return unless what.include?(:database)

      define_method(:before_setup) do
        super()
        flunk "No databases: run bin/test FILE, or set TEST_DATABASE_URL … (bin/services url)" unless ENV["TEST_DATABASE_URL"]
      end
    end

    # @param tests [Array<Symbol>] their names; none: all of the class.
    def timing(*tests) = (@timing = tests.empty? ? :all : [*@timing, *tests])

    # FAIRLEAD_TIMING=only selects the promises about time, FAIRLEAD_TIMING=no the others.
    def runnable_methods
      wanted = ENV.fetch("FAIRLEAD_TIMING", nil)
      return super if wanted.nil?

      timing, others = super.partition { |test| @timing == :all || @timing&.include?(test.to_sym) }
      wanted == "only" ? timing : others
    end
  end
end
