# frozen_string_literal: true

module Fairlead
  # What the tests' time is spent on: told after many of them, so that it stays short.
  class Slowest < Minitest::AbstractReporter
    MANY = 500
    TOLD = 15

    # Minitest asks a plugin that. The summary of all remains the last word.
    def self.minitest_plugin_init(options) = Minitest.reporter.reporters.unshift(new(options[:io]))

    def initialize(output)
      super()
      @output = output
      @times = Hash.new(0.0)
      @count = 0
    end

    def record(result)
      @count += 1
      @times[result.source_location.first[%r{test/.*}]] += result.time
    end

    def report
      return if @count < MANY

      @output.puts "\n\nWhere most of the time went, in seconds:"
      @times.max_by(TOLD, &:last).each { |path, time| @output.puts "#{time.round.to_s.rjust(5)} #{path}" }
    end

    Minitest.register_plugin(self)
  end
end
