# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  class ProcessMeterTest < Test
    def test_memory_is_read_seldom_and_the_time_of_the_processors_each_time
      meter = ProcessMeter.new
      first = meter.call(Process.pid)
      kept = Array.new(40) { "x" * 1_000_000 }
      eventually("time has passed") { meter.call(Process.pid).cpu > first.cpu || 1000.times { Math.sqrt(2) }.zero? }

      assert_equal first.memory, meter.call(Process.pid).memory
      assert_operator ProcessUsage.of(Process.pid).memory, :>=, first.memory + 20_000_000
      assert_equal 40, kept.size
      assert_nil meter.call(2**22 + 1)
    end

    def test_it_forgets_processes_that_nobody_asks_for_any_more
      meter = ProcessMeter.new(costly: 0.01)
      meter.call(Process.ppid)
      eventually("it has forgotten the other one") { meter.call(Process.pid) && meter.size == 1 }
    end
  end
end
