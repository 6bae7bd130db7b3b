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
  # A test file declares in one line what it needs: `needs :database`, `needs :browser`, `needs :machine`. (see Needs)
  class Suite
    ROOT = File.expand_path("..", __dir__)
    MODES = %w[all fast timing].freeze
    # One more than there are processors: tests wait for more than half of their time, but in a crowd they take longer than their bounds.
    LANES = Integer(ENV.fetch("FAIRLEAD_TEST_LANES", (Etc.nprocessors + 1).clamp(2, 8)))
    # The fast mode leaves out files that took longer than so many seconds.
    SHORT = 5
    # What fails runs again alone, so many times, and is unstable if it passes them all; more unstable ones make a run red.
    AGAIN, MOST_UNSTABLE = 3, 5
    # How long each entry took, for the order and the limits of the next run; each run writes its own to tmp/suite/seconds.
    SECONDS = File.readlines(File.join(__dir__, "suite/seconds"), chomp: true).to_h { |line| line.split(" ", 2).then { |time, name| [name, time.to_f] } }
    # The least that an entry may take.
    LIMIT = 600

    # @param entry [TestFile, CoreTarget]
    # @return [Numeric] how many seconds it may take: the machine may be slower than the one on which it was measured.
    def self.limit(entry) = [LIMIT, 5 * SECONDS.fetch(entry.name, entry.guess)].max

    # @param mode [String] one of MODES.
    # @param root [String] the folder with test and bench.
    def initialize(mode, root: ROOT, databases: mode != "fast")
      @mode = mode
      @root = root
      @databases = databases
      make_folder(@folder = File.join(root, "tmp/suite"))
      @lanes = Array.new(mode == "timing" ? 1 : LANES) { |index| Lane.new(index, @folder, databases:) }
      @report = Report.new(@folder)
    end

    # @return [Boolean] whether all passed, but for a few unstable tests.
    def run
      Lane.clear_away(databases: @databases)
      @lanes.each(&:open)
      run_side_by_side unless @mode == "timing"
      run_alone if @mode == "all"
      run_timing unless @mode == "fast"
      run_again
      @report.finish
    ensure
      @lanes.map { |lane| Thread.new { lane.close } }.each(&:join)
      Claims.release(@folder)
    end

    private

    # Two runs in one checkout would delete what the other has written.
    def make_folder(folder)
      FileUtils.mkdir_p(File.dirname(folder))
      Claims.take(folder, wait: false) or abort "bin/test runs already in #{@root}: wait for its end, or use another checkout."
      FileUtils.rm_rf(folder)
      FileUtils.mkdir_p(folder)
    end

    def run_side_by_side
      queue = (@mode == "fast" ? fast : files.reject(&:alone?)).sort_by { |entry| -SECONDS.fetch(entry.name, entry.guess) }
      work_off(queue, @lanes, timing: false)
    end

    # They saturate the processors; and what a sanitizer says of the core is final.
    def run_alone = work_off(files.select(&:alone?) + CoreTarget.all(@root), @lanes.first(1), timing: false)

    # Promises about time, measured while nothing else runs.
    def run_timing = work_off(files.select(&:timing?), @lanes.first(1), timing: true)

    def run_again
      faults = @report.faults.reject(&:final?)
      return if faults.size > MOST_UNSTABLE # these are no accidents

      faults.each { |fault| @report.forgive(fault) if Array.new(AGAIN).all? { passes_alone?(fault, @lanes.first) } }
    end

    def passes_alone?(fault, lane)
      lane.start(fault.entry, timing: fault.timing?, only: fault.test, again: true)
      sleep 0.01 until (outcome = lane.outcome)
      @report.add_again(outcome, fault)
    end

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

    def files = @files ||= TestFile.all(@root)

    def fast = files.select { |file| file.needs.empty? && !file.benchmark? && SECONDS.fetch(file.name, 0) < SHORT }
  end
end

require_relative "suite/core_target"
require_relative "suite/lane"
require_relative "suite/report"
require_relative "suite/test_file"
