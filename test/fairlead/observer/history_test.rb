# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  class HistoryTest < Test
    def setup
      @page = SharedPage.new(2)
      @page.write(1, :state, WorkerState::SERVING)
      @page.write(1, :pid, 4712)
      @page.write(1, :in_flight, 3)
      @cpu = 0.0
      @history = History.new(@page, cpu: ->(pid) { @cpu if pid == 4712 }, memory: ->(_) { 1000 })
    end

    def test_a_sample_is_what_has_happened_since_the_one_before
      add(at: 10.0, ok: 100, cpu_kind: 1.0)
      @cpu = 2.5
      add(at: 15.0, ok: 150, cpu_kind: 3.0)
      columns = @history.after(0)[:columns]

      assert_equal [[10.0], [0.4], [50.0], [3], [1000], [1]], columns.values_at("2xx", :cpu, :cpu_percent, :in_flight, :memory, :workers)
      assert_operator columns[:p99].first, :>, 0
    end

    def test_readers_get_what_they_do_not_have
      4.times { |number| add(at: number * 5.0, ok: number * 10) }

      assert_equal [3, 3], [@history.after(0)[:number], @history.after(0)[:columns][:at].size]
      assert_equal 1, @history.after(2)[:columns][:at].size
      assert_equal [], @history.after(3)[:columns][:at]
      assert_equal 3, @history.after(99)[:columns][:at].size, "it has the history of another process"
    end

    def test_an_hour_is_kept
      (History::MOST + 9).times { |number| add(at: number * 5.0, ok: number) }

      assert_equal [History::MOST, History::MOST + 8], [@history.after(0)[:columns][:at].size, @history.after(0)[:number]]
      assert_equal History::MOST, @history.after(1)[:columns][:at].size
    end

    def test_an_empty_one
      add(at: 1.0)

      assert_equal({ interval: 5.0, number: 0, columns: {} }, @history.after(0))
    end

    private

    def add(at:, ok: 0, cpu_kind: 0.0)
      histogram = { counts: [0, ok, *[0] * (SharedPage::BOUNDS.size - 1)], sum: ok * 0.002 }
      times = { service: histogram, queue: histogram, codes: { "2xx" => ok }, kinds: { cpu: cpu_kind } }
      @history.add(RecentTimes.from({ times:, route_times: [] }, at:))
    end
  end
end
