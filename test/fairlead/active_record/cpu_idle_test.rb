# frozen_string_literal: true

require "etc"
require_relative "../../helper"

module Fairlead
  # What share of the time this process and its machine have nothing to do. What the machine does meanwhile is counted, too.
  class CpuIdleTest < Test
    needs :machine

    def setup
      super
      @idle = ActiveRecord::CpuIdle.new
    end

    def test_a_process_that_rests_is_idle_as_far_as_the_machine_is
      assert_as_idle_as_the_machine { sleep 1 }
    end

    def test_a_process_that_computes_is_busy_for_that_part_of_the_time
      began = monotonic
      look
      used = cpu
      nil while cpu < used + 0.3
      used = cpu - used

      assert_operator look, :<=, 1 - (used / (monotonic - began))
    end

    def test_so_is_one_that_rests_while_others_keep_the_whole_machine_at_work
      others = Array.new(2 * Etc.nprocessors) { fork { loop { nil } } }
      eventually("they are at work") { others.all? { |pid| cpu_time(pid) > 0.02 } }

      assert_as_idle_as_the_machine { sleep 0.5 }
    ensure
      others.each { |pid| Process.kill(:KILL, pid) && Process.wait(pid) }
    end

    private

    def look = @idle.since_last_call(monotonic)

    def cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)

    # The machine's figures of the same time: those before and after a look do not differ.
    def assert_as_idle_as_the_machine
      eventually("no tick comes while it looks") do
        _, before = look_between_ticks
        yield
        idle, after = look_between_ticks
        before && after && assert_in_delta(machine_idle(before, after), idle, 0.05)
      end
    end

    # @return [Array(Float, Array<Integer>)] nil if it is not known at which ticks it has looked.
    def look_between_ticks
      before = ticks
      idle = look
      [idle, before] if before == ticks
    end

    def ticks = File.open("/proc/stat", &:gets).split[1, 8].map(&:to_i)

    def machine_idle(before, after)
      passed = after.zip(before).map { |now, then_| now - then_ }
      (passed[3] + passed[4]).fdiv(passed.sum)
    end
  end
end
