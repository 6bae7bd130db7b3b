# frozen_string_literal: true

module Fairlead
  class Suite
    # Prints a line for each entry as it ends, its failures at once, and in the end what failed, what was skipped, where the
    # time went, and a summary like minitest's.
    class Report
      # Entries and tests listed as the slowest.
      SLOWEST = 10
      private_constant :SLOWEST

      def initialize
        @outcomes = []
        @started = now
      end

      # @param left [Integer] how many entries have not begun.
      def add(outcome, left:)
        @outcomes << outcome
        runs = outcome.runs
        say format("%6.1<seconds>f s  %<cpu>5.1f s of CPU  %<verdict>-6s  %<name>s  (%<runs>d run%<plural>s; %<left>d left)",
                   seconds: outcome.seconds, cpu: outcome.cpu_seconds, verdict: outcome.passed? ? "ok" : "FAILED", name: outcome.name, runs:,
                   plural: runs == 1 ? "" : "s", left:)
        [*outcome.failures, *outcome.errors].each { |text| say text.gsub(/^/, "    "), "" }
      end

      # @param measured [String] a file for the seconds that each entry took, but for the promises about time.
      # @return [Boolean] whether all passed.
      def finish(measured)
        write_seconds(measured)
        tell_slowest
        tell_skips
        tell_failures
        say "", "Finished in #{(now - @started).round(1)} s; the entries took #{sum(&:seconds).round} s and #{sum(&:cpu_seconds).round} s of CPU."
        say "#{sum(&:runs)} runs, #{sum(&:assertions)} assertions, #{sum { |one| one.failures.size }} failures, " \
            "#{sum { |one| one.errors.size }} errors, #{sum { |one| one.skips.size }} skips"
        @outcomes.all?(&:passed?)
      end

      private

      def write_seconds(path)
        side_by_side = @outcomes.reject(&:timing?).sort_by { |one| -one.seconds }
        lines = side_by_side.map { |one| "#{one.seconds.round(1)} #{one.name}" }
        File.write(path, "#{lines.join("\n")}\n")
        File.write("#{path}.tests", tests.map { |seconds, name| "#{seconds.round(2)} #{name}\n" }.join)
      end

      # @return [Array<Array(Float, String)>]
      def tests
        @tests ||= @outcomes.flat_map { |one| one.results.map { |result| [result[:seconds], result[:name]] } }.sort_by { |seconds, _| -seconds }
      end

      def tell_slowest
        say "", "The slowest, in seconds:"
        slowest = @outcomes.max_by(SLOWEST, &:seconds).map { |one| [one.seconds, one.name] }
        (slowest + tests.first(SLOWEST)).each { |seconds, name| say format("%6.1f  %s", seconds, name) }
      end

      def tell_skips
        skips = @outcomes.flat_map(&:skips).group_by { |skip| skip[:reason].lines.first.chomp }
        return if skips.empty?

        say "", "Skipped:"
        skips.each { |reason, group| say "  #{group.size} × #{reason} (#{group.first[:name]}#{", …" if group.size > 1})" }
      end

      def tell_failures
        failed = @outcomes.reject(&:passed?)
        return if failed.empty?

        say "", "Failed:"
        failed.each do |outcome|
          say "", "== #{outcome.name}#{" --seed #{outcome.seed}" if outcome.seed}"
          say(*outcome.failures, *outcome.errors)
        end
      end

      def sum(&) = @outcomes.sum(&)

      def say(*lines)
        $stdout.puts(lines)
        $stdout.flush
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
