# frozen_string_literal: true

module Fairlead
  class Suite
    # Prints a line for each entry as it ends, its failures at once, and in the end what failed, what is unstable, what was skipped, where
    # the time went, and a summary like minitest's.
    class Report
      # Entries and tests listed as the slowest.
      SLOWEST = 10
      private_constant :SLOWEST

      # @param folder [String] for the files "seconds" (of each entry but for the promises about time) and "unstable".
      def initialize(folder)
        @folder = folder
        @outcomes = []
        @unstable = []
        @started = now
      end

      # @param left [Integer] how many entries have not begun.
      def add(outcome, left:)
        @outcomes << outcome
        runs = outcome.runs
        tell(outcome, "#{outcome.name}  (#{runs} run#{"s" unless runs == 1}; #{left} left)")
      end

      # @param outcome [Outcome] of what runs once more, alone.
      # @return [Boolean] whether it ran, and passed.
      def add_again(outcome, fault)
        tell(outcome, "again, alone: #{fault.name}")
        outcome.passed? && outcome.runs.positive?
      end

      # @return [Array<Fault>] of all that failed, but for what has been forgiven.
      def faults = @outcomes.flat_map(&:faults) - @unstable

      # @param fault [Fault] what was found to pass alone.
      def forgive(fault) = @unstable << fault

      # @return [Boolean] whether all passed that is not unstable.
      def finish
        write_seconds(File.join(@folder, "seconds"))
        File.write(File.join(@folder, "unstable"), @unstable.map { |fault| "#{fault.name}\n#{fault.text}\n" }.join("\n"))
        tell_slowest
        tell_skips
        tell_faults("Failed:", faults)
        tell_faults("Unstable: these passed alone, #{AGAIN} times. Each is a fault, to be mended before other work.", @unstable)
        tell_summary
        faults.empty?
      end

      private

      def tell(outcome, what)
        say format("%6.1<seconds>f s  %<cpu>5.1f s of CPU  %<verdict>-6s  %<what>s",
                   seconds: outcome.seconds, cpu: outcome.cpu_seconds, verdict: outcome.passed? ? "ok" : "FAILED", what:)
        outcome.faults.each { |fault| say fault.text.gsub(/^/, "    "), "" }
      end

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

      def tell_faults(title, faults)
        return if faults.empty?

        say "", title
        faults.each { |fault| say "", "== #{fault.name}", fault.text }
      end

      def tell_summary
        failures, errors = faults.partition(&:failure?).map(&:size)
        say "", "Finished in #{(now - @started).round(1)} s; the entries took #{sum(&:seconds).round} s and #{sum(&:cpu_seconds).round} s of CPU."
        say "Unstable: #{@unstable.size}"
        say "#{sum(&:runs)} runs, #{sum(&:assertions)} assertions, #{failures} failures, #{errors} errors, #{sum { |one| one.skips.size }} skips"
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
