# frozen_string_literal: true

require "etc"
require_relative "../../helper"

module Fairlead
  # What share of the time this process and its machine have nothing to do.
  class CpuIdleTest < Test
    def setup
      super
      @idle = ActiveRecord::CpuIdle.new
      look
    end

    def test_a_process_that_rests_is_idle_as_far_as_the_machine_is
      machine = machine_idle { sleep 1 }

      assert_in_delta machine, look, 0.2
    end

    def test_a_process_that_computes_is_not
      finish = cpu + 0.3
      nil while cpu < finish

      # Where others take the processor meanwhile, the machine is not idle either.
      assert_operator look, :<, 0.5
    end

    def test_nor_is_one_that_rests_while_others_keep_the_whole_machine_at_work
      others = Array.new(2 * Etc.nprocessors) { fork { loop { nil } } }
      eventually("they are at work") { others.all? { |pid| cpu_time(pid) > 0.02 } }
      look
      sleep 0.3

      assert_operator look, :<, 0.2
    ensure
      others.each { |pid| Process.kill(:KILL, pid) && Process.wait(pid) }
    end

    private

    def look = @idle.since_last_call(monotonic)

    def cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)

    def machine_idle
      before = File.open("/proc/stat", &:gets).split[1, 8].map(&:to_i)
      yield
      ticks = File.open("/proc/stat", &:gets).split[1, 8].map(&:to_i).zip(before).map { |now, then_| now - then_ }
      (ticks[3] + ticks[4]).fdiv(ticks.sum)
    end
  end
end
