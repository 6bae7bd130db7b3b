# frozen_string_literal: true

require "json"
require_relative "fault"

module Fairlead
  class Suite
    # What became of one entry.
    class Outcome
      # Characters of its output that a failure shows.
      OUTPUT = 6_000
      private_constant :OUTPUT

      attr_reader :seconds, :cpu_seconds

      # @param status [Process::Status, nil] nil: it has been killed, since it took too long.
      # @param log [String] its output; records [String] what Recorder has written.
      def initialize(entry, timing:, status:, late:, seconds:, cpu_seconds:, log:, records:)
        @entry = entry
        @timing = timing
        @status = status
        @late = late
        @seconds = seconds
        @cpu_seconds = cpu_seconds
        @log = log
        @records = File.exist?(records) ? File.readlines(records).filter_map { |line| parse(line) } : []
      end

      def name = "#{@entry.name}#{" (timing)" if timing?}"

      # @return [Boolean] whether the promises about time ran, or the other tests.
      def timing? = @timing

      # @return [Array<Hash>] of the tests that have ended.
      def results = @records.select { |record| record.key?(:code) }

      def assertions = results.sum { |result| result[:assertions] }
      def skips = results.select { |result| result[:code] == "S" }

      # @return [Array<Fault>]
      def faults = @faults ||= test_faults + [process_fault].compact

      # @return [Integer] a target of make counts as one.
      def runs = @entry.is_a?(TestFile) ? results.size : 1

      def passed? = faults.empty?

      private

      def seed = output[/--seed (\d+)/, 1]

      def test_faults
        failed.map { |result| Fault.new(@entry, result[:text], timing: timing?, test: result[:name], failure: result[:code] == "F", seed:) }
      end

      def failed = results.select { |result| %w[E F].include?(result[:code]) }

      def process_fault
        return if running.nil? && @status && (@status.success? || (@status.exited? && failed.any?))

        how = @late ? "was killed after #{@entry.limit} s" : "ended with #{@status}"
        text = "Error:\n#{name} #{how}#{" in #{running}" if running}:\n#{output[-OUTPUT..] || output}"
        Fault.new(@entry, text, timing: timing?, final: @status&.signaled? || (@entry.is_a?(CoreTarget) && Fault.crash?(output)), seed:)
      end

      # The test that had begun and has not ended.
      def running = (last = @records.last) && last[:begun]

      def output = @output ||= File.exist?(@log) ? File.read(@log).scrub : ""

      # The last line of a process that died may be half a line.
      def parse(line)
        JSON.parse(line, symbolize_names: true)
      rescue JSON::ParserError
        nil
      end
    end
  end
end
