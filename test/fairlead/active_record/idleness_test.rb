# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # What share of the time this process and its machine have nothing to do.
  class IdlenessTest < Test
    def setup
      super
      @idleness = ActiveRecord::Idleness.new
      look
    end

    def test_who_rests_is_idle_as_far_as_the_machine_is
      machine = machine_idle { sleep 0.3 }

      assert_in_delta machine, look, 0.15
    end

    def test_who_computes_is_not
      compute 0.3

      assert_operator look, :<, 0.2
    end

    def test_what_a_thread_did_that_has_ended_takes_nothing_away
      Thread.new { compute(0.3) && look }.join
      compute 0.1

      assert_operator look, :<, 0.2
    end

    def test_nor_is_who_rests_while_others_keep_the_whole_machine_at_work
      others = Array.new(2 * Etc.nprocessors) { fork { sleep(0) while compute(1) } }
      sleep 0.2
      look
      sleep 0.3

      assert_operator look, :<, 0.2
    ensure
      others.each { |pid| Process.kill(:KILL, pid) && Process.wait(pid) }
    end

    def test_it_tells_for_how_long_this_process_ran
      compute 0.2
      before = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
      ask
      compute 0.2
      ran = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - before

      assert_in_delta ran, ask.last, 0.02
    end

    private

    def look = ask.first

    def ask = @idleness.since_last_call(Process.clock_gettime(Process::CLOCK_MONOTONIC))

    def compute(seconds)
      finish = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
      nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < finish
      true
    end

    def machine_idle
      before = File.open("/proc/stat", &:gets).split[1, 8].map(&:to_i)
      yield
      ticks = File.open("/proc/stat", &:gets).split[1, 8].map(&:to_i).zip(before).map { |now, then_| now - then_ }
      (ticks[3] + ticks[4]).fdiv(ticks.sum)
    end
  end
end
