# frozen_string_literal: true

require_relative "helper"

# A busy machine may keep a test waiting for seconds: outside `timing` an upper bound on how long something took is a guard against
# hanging.
class TimeBoundsTest < Fairlead::Test
  # Seconds.
  LEAST = 10
  TIMES = /\b(?:took|duration|seconds\w*|elapsed|monotonic|slept|waited|taken|finished)\b/
  NUMBER = /\d[\d_]*(?:\.\d+)?/
  UPPER = /assert_operator\b.*#{TIMES}.*, :<=?, (?<bound>#{NUMBER}|[A-Z]\w+)|assert_includes \(?#{NUMBER}?\.\.\.?(?<bound>#{NUMBER})\)?, #{TIMES}/
  private_constant :LEAST, :TIMES, :NUMBER, :UPPER

  def test_what_others_may_delay_has_seconds_to_spare
    low = Dir["{test,bench/test}/**/*_test.rb", base: ROOT].grep_v(%r{/time_bounds_test}).flat_map { |name| low_bounds(name, File.readlines(File.join(ROOT, name))) }

    assert_empty low, "less than #{LEAST} s: let the order of events tell, or declare the test with `timing`"
  end

  def test_they_are_seen
    seen = low_bounds("a", ["BOUND = 0.5", "def test_a", "assert_operator took, :<, 4.5", "assert_operator duration { get }, :<=, BOUND",
                            "assert_includes 0.9..8, took", "assert_operator took, :<, 10", "timing def test_b",
                            "assert_operator took, :<, 0.1", "def test_c", "assert_operator size, :<, 3"])

    assert_equal %w[a:3 a:4 a:5], seen
  end

  private

  # @return [Array<String>] "file:line" of each.
  def low_bounds(name, lines)
    return [] if lines.any?(/^ *timing$/) # all of them

    timing = false
    lines.filter_map.with_index(1) do |line, number|
      timing = line.match?(/^ *timing /) if line.match?(/^ *(timing )?(def |define_method)/)
      bound = !timing && line[UPPER, :bound]
      "#{name}:#{number}" if bound && seconds(bound, lines) < LEAST
    end
  end

  # A constant of another file may be anything.
  def seconds(bound, lines) = (bound.match?(/\A\d/) ? bound : lines.join[/^ *#{bound} = (#{NUMBER})/, 1] || LEAST).to_f
end
