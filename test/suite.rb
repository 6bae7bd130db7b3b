# frozen_string_literal: true

require "etc"
require "fileutils"
require "json"
require "minitest"
require "net/http" # takes long to load, and most of the files that are forked want it

module Fairlead
  # Runs test files and the C core's suites: each in a process of its own, a few side by side, the longest first. bin/test
  # starts it and describes the modes.
  #
  # A test file declares in one line what it needs: `needs :database`, `needs :browser`. (see Needs)
  class Suite
    ROOT = File.expand_path("..", __dir__)
    MODES = %w[all fast timing].freeze
    # One more than there are processors: tests wait for more than half of their time, but in a crowd they take longer than their bounds.
    LANES = Integer(ENV.fetch("FAIRLEAD_TEST_LANES", (Etc.nprocessors + 1).clamp(2, 8)))
    # The fast mode leaves out files that took longer than so many seconds.
    SHORT = 5
    # How long each entry took, for the order of the next run: the first is committed, the second written by each run.
    SECONDS = File.join(__dir__, "suite/seconds")
    MEASURED = File.join(ROOT, "tmp/suite/seconds")

    # @param mode [String] one of MODES.
    def initialize(mode)
      @mode = mode
      @folder = File.join(ROOT, "tmp/suite")
      FileUtils.rm_rf(@folder)
      FileUtils.mkdir_p(@folder)
      @report = Report.new
    end

    # @return [Boolean] whether all passed.
    def run
      lanes = Array.new(@mode == "timing" ? 1 : LANES) { |index| Lane.new(index, @folder, databases: @mode != "fast") }
      lanes.map { |lane| Thread.new { lane.open } }.each(&:join)
      run_side_by_side(lanes) unless @mode == "timing"
      run_alone(lanes.first) unless @mode == "fast"
      @report.finish(MEASURED)
    ensure
      lanes&.map { |lane| Thread.new { lane.close } }&.each(&:join)
    end

    private

    def run_side_by_side(lanes)
      queue = (@mode == "fast" ? fast : [*files, *core]).sort_by { |entry| -seconds.fetch(entry.name, entry.guess) }
      work_off(queue, lanes, timing: false)
    end

    # Promises about time, measured while nothing else runs.
    def run_alone(lane) = work_off(files.select(&:timing?), [lane], timing: true)

    def work_off(queue, lanes, timing:)
      until queue.empty? && lanes.all?(&:idle?)
        lanes.each do |lane|
          lane.start(queue.shift, timing:) if lane.idle? && queue.any?
          outcome = lane.outcome
          @report.add(outcome, left: queue.size) if outcome
        end
        sleep 0.01
      end
    end

    def files = @files ||= TestFile.all(ROOT)

    def fast = files.select { |file| file.needs.empty? && !file.benchmark? && seconds.fetch(file.name, 0) < SHORT }

    def core = CoreTarget.all(ROOT)

    def seconds = @seconds ||= File.readlines(SECONDS, chomp: true).to_h { |line| line.split(" ", 2).then { |time, name| [name, time.to_f] } }
  end
end

require_relative "suite/core_target"
require_relative "suite/lane"
require_relative "suite/report"
require_relative "suite/test_file"
