# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # Covers supervision/respawn_policy.rb
  class WorkersTest < Test
    def test_it_forks_a_worker_for_each_place
      table = workers(2)
      forks = table.due(0.0)

      assert_equal [[WorkerTable::Fork, 0, 0], [WorkerTable::Fork, 1, 1]], kinds(forks)
      assert_empty table.due(0.0), "what was said once is not said again"
      refute_predicate table, :complete?
    end

    def test_it_is_complete_once_all_serve
      table = serving(2)

      assert_predicate table, :complete?
      assert_empty table.due(1.0)
      assert_nil table.next_deadline(1.0), "there is nothing to wait for but events"
    end

    def test_a_worker_that_ends_unasked_is_replaced_at_once
      table = serving(2)

      assert_equal :death, table.ended(table[101], 1.0)
      assert_equal [[WorkerTable::Fork, 1, 1]], kinds(table.due(1.0))
      assert_equal 1, table.restarts(1)
    end

    def test_a_worker_that_keeps_ending_is_replaced_later_each_time
      table = serving(1)
      now = 0.0
      delays = Array.new(10) do
        table.ended(table.first, now)
        ready_at = table.due(now).empty? ? table.next_deadline(now) : now
        boot(table, ready_at) if table.none?
        table.ready(table.first, ready_at)
        (ready_at - now).tap { now = ready_at + 1 }
      end

      assert_equal [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0], delays
    end

    def test_a_worker_that_served_for_a_good_while_does_not_count_as_failing
      table = serving(1)
      3.times do |round|
        now = (round + 1) * 100.0
        table.ended(table.first, now)

        assert_equal [[WorkerTable::Fork, 0, 0]], kinds(boot(table, now))
        table.ready(table.first, now)
      end
    end

    def test_boots_that_always_fail_make_it_hopeless
      table = workers(2)
      now = 0.0
      tries = 0
      until table.hopeless?
        now = table.next_deadline(now) if tries.positive?
        boot(table, now).each { tries += 1 }
        table.to_a.each { |worker| assert_equal :boot, table.ended(worker, now) }
      end

      assert_equal 2 * WorkerTable::PATIENCE, tries
      assert_in_delta 1.75, now, 0.001
    end

    def test_what_no_other_try_would_mend_makes_it_hopeless_at_once
      table = workers(2)
      boot(table, 0.0)
      table.first.refused = true

      assert_equal :boot, table.ended(table.first, 1.0)
      assert_predicate table, :hopeless?
    end

    def test_and_a_restart_is_given_up_at_once
      table = serving(1)
      table.restart
      boot(table, 1.0)
      successor = table.find(&:booting?)
      successor.refused = true

      assert_equal :boot, table.ended(successor, 2.0)
      assert_predicate table, :restart_given_up?
      refute_predicate table, :hopeless?
    end

    def test_it_is_not_hopeless_while_one_serves
      table = serving(2)
      fail_boots(table, 1, 20)

      refute_predicate table, :hopeless?
    end

    def test_crashes_while_serving_never_make_it_hopeless
      table = serving(1)
      20.times do |round|
        table.ended(table.first, now = round * 40.0)

        refute_predicate table, :hopeless?
        boot(table, now + 30)
        table.ready(table.first, now + 31)
      end
    end

    def test_a_worker_that_does_not_serve_in_time_is_killed_and_counts_as_failed
      table = workers(1, boot_timeout: 5.0)
      boot(table, 0.0)

      assert_in_delta 5.0, table.next_deadline(0.0)
      assert_empty table.due(4.9)
      assert_equal [[WorkerTable::Kill, 0, 0]], kinds(table.due(5.0))
      assert_empty table.due(5.1)
      assert_match(/boot_timeout/, table.first.failure)
      assert_equal :boot, table.ended(table.first, 5.2)
    end

    def test_a_restart_replaces_one_after_the_other_and_each_serves_before_its_predecessor_drains
      table = serving(2)
      table.restart

      assert_equal [[WorkerTable::Fork, 0, 2]], kinds(boot(table, 1.0)), "in a slot of its own"
      assert_empty table.due(1.1), "one at a time"
      table.ready(table.find(&:booting?), 2.0)
      drain, fork = actions = boot(table, 2.0)

      assert_equal [[WorkerTable::Drain, 0, 0], [WorkerTable::Fork, 1, 3]], kinds(actions)
      assert drain.handover
      assert_equal :expected, table.ended(table[100], 2.1)
      table.ready(fork.worker, 3.0)
      table.due(3.0)
      table.ended(table[101], 3.1)

      refute_predicate table, :restarting?
      assert_predicate table, :complete?
      assert_empty table.due(4.0)
      assert_equal [1, 1], table.map(&:generation)
    end

    def test_a_slot_is_not_given_to_two
      table = serving(2)
      3.times do |round|
        table.restart
        finish_restart(table, (round + 1) * 10.0) do
          slots = table.map(&:slot)

          assert_equal slots.uniq, slots
        end
      end
    end

    def test_a_restart_waits_when_all_slots_are_taken_by_workers_that_drain
      table = serving(2, slots: 3)
      table.restart
      boot(table, 1.0)
      table.ready(table.find(&:booting?), 1.5)

      assert_equal [[WorkerTable::Drain, 0, 0]], kinds(boot(table, 1.5))
      assert_empty boot(table, 2.0)
      assert_in_delta 31.5, table.next_deadline(2.0), 0.001, "until the drain must be over"
      table.ended(table[100], 3.0)
      assert_equal [[WorkerTable::Fork, 1, 0]], kinds(boot(table, 3.0))
    end

    def test_a_restart_that_cannot_boot_is_given_up_and_the_old_workers_stay
      table = serving(2)
      table.restart
      now = 1.0
      tries = 0
      while table.restarting?
        unless boot(table, now).empty?
          tries += 1
          table.ended(table.find(&:booting?), now)
        end
        now = table.next_deadline(now) || now
      end

      assert_predicate table, :restart_given_up?
      assert_equal WorkerTable::PATIENCE, tries
      assert_predicate table, :complete?
      assert_empty table.due(now + 100)
      assert_equal [100, 101], table.map(&:pid)
    end

    def test_a_second_restart_during_the_first_replaces_those_too_that_the_first_has_replaced
      table = serving(2)
      table.restart
      boot(table, 1.0)
      table.ready(table.find(&:booting?), 1.0)
      table.restart
      finish_restart(table, 2.0)

      refute_predicate table, :restart_given_up?
      assert_equal [2, 2], table.map(&:generation)
    end

    def test_a_worker_that_ends_during_a_restart_is_replaced_by_a_new_one
      table = serving(2)
      table.restart
      boot(table, 1.0)
      table.ended(table[101], 1.1)

      assert_equal [[WorkerTable::Fork, 1, 1]], kinds(boot(table, 1.1))
      table.select(&:booting?).each { |worker| table.ready(worker, 2.0) }
      assert_predicate table, :complete?
      assert_equal [[WorkerTable::Drain, 0, 0]], kinds(table.due(2.0))
      refute_predicate table, :restarting?
    end

    def test_one_more_and_one_less
      table = serving(1)

      assert table.grow
      assert_equal [[WorkerTable::Fork, 1, 1]], kinds(boot(table, 1.0))
      table.ready(table.find(&:booting?), 1.0)

      assert table.shrink
      drains = table.due(2.0)
      assert_equal [[WorkerTable::Drain, 1, 1]], kinds(drains)
      assert drains.first.handover, "its idle connections go to the one that stays"
      assert_equal :expected, table.ended(table.find(&:leaving?), 3.0)
      assert_empty table.due(4.0)
    end

    def test_there_is_always_one_worker_and_always_a_slot_to_replace_one
      table = serving(1, slots: 3)

      refute table.shrink
      assert table.grow
      refute table.grow
      assert_equal 2, table.size
    end

    def test_a_stop_drains_all_and_forks_none
      table = serving(2)
      table.stop

      drains = table.due(1.0)
      assert_equal [[WorkerTable::Drain, 0, 0], [WorkerTable::Drain, 1, 1]], kinds(drains)
      refute drains.any?(&:handover), "there is nobody to hand over to"
      table.ended(table[100], 1.1)
      assert_empty table.due(1.1)
      refute_predicate table, :empty?
      table.ended(table[101], 1.2)
      assert_predicate table, :empty?
    end

    def test_where_others_serve_a_stop_lets_connections_go_on_for_another_answer
      table = serving(2)
      table.stop(handover: true)
      assert_equal [true, true], table.due(1.0).map(&:handover)
      table.stop(handover: true)
      assert_empty table.due(1.1), "they have been told"
    end

    def test_those_that_hand_over_are_told_when_all_stop_and_keep_their_time
      table = serving(2, drain_timeout: 30.0)
      table.shrink
      assert_equal [[1, true]], table.due(1.0).map { |drain| [drain.worker.index, drain.handover] }
      table.stop
      assert_equal [[0, false], [1, false]], table.due(2.0).map { |drain| [drain.worker.index, drain.handover] }
      assert_empty table.due(2.1), "they have been told"
      assert_equal [[WorkerTable::Stop, 1, 1]], kinds(table.due(31.0))
    end

    def test_a_worker_that_drains_too_long_is_told_to_stop_and_then_killed
      table = serving(1, drain_timeout: 10.0)
      table.stop
      table.due(1.0)

      assert_in_delta 11.0, table.next_deadline(1.0)
      assert_empty table.due(10.9)
      assert_equal [[WorkerTable::Stop, 0, 0]], kinds(table.due(11.0))
      assert_equal [[WorkerTable::Kill, 0, 0]], kinds(table.due(11.0 + WorkerTable::GRACE))
      assert_empty table.due(100.0)
    end

    def test_a_second_stop_ends_at_once_also_those_that_drain
      table = serving(2)
      table.stop
      table.due(1.0)
      table.stop_now

      assert_equal [[WorkerTable::Stop, 0, 0], [WorkerTable::Stop, 1, 1]], kinds(table.due(1.5))
      assert_empty table.due(1.6)
      assert_equal [WorkerTable::Kill] * 2, table.due(1.5 + WorkerTable::GRACE).map(&:class)
    end

    def test_a_worker_of_another_kind_takes_a_slot_and_no_place
      table = serving(1)
      relief = table.add_relief(1.0).worker
      table.forked(relief, 900)

      assert_equal 1, relief.slot
      table.ready(relief, 1.5)
      assert_empty table.due(1.5), "it succeeds nobody"
      assert_equal :death, table.ended(relief, 2.0)
      assert_empty table.due(3.0), "and nobody succeeds it"
      assert_equal 0, table.restarts(0)
    end

    def test_a_worker_that_may_never_come_back_gets_a_successor_then_drains_and_is_killed_at_last
      table = serving(2, drain_timeout: 30.0)
      stuck = table[101]

      assert table.replace(stuck)
      refute table.replace(stuck), "it is said again and again, and done once"
      assert_equal [[WorkerTable::Fork, 1, 2]], kinds(table.due(1.1))
      successor = table.find(&:booting?)
      table.forked(successor, 200)
      assert_predicate stuck, :serving?, "until then it serves what it can"
      table.ready(successor, 2.0)
      assert_equal [[WorkerTable::Drain, 1, 1]], kinds(table.due(2.0))
      assert_equal [[WorkerTable::Stop, 1, 1]], kinds(table.due(32.0))
      assert_equal [[WorkerTable::Kill, 1, 1]], kinds(table.due(32.0 + WorkerTable::GRACE))
      assert_equal :expected, table.ended(stuck, 33.1)
      assert_empty table.due(34.0)
    end

    def test_a_relief_worker_that_may_never_come_back_drains_at_once_and_one_that_ends_is_left_alone
      table = serving(1)
      relief = table.add_relief(1.0).worker
      table.forked(relief, 900)
      table.ready(relief, 1.5)

      assert table.replace(relief)
      assert_equal [[WorkerTable::Drain, 0, 1]], kinds(table.due(2.0))
      refute table.replace(relief)
      table.stop
      refute table.replace(table[100])
    end

    def test_there_are_as_many_lane_workers_as_regular_ones_at_most_one_booting
      table = serving(2)
      lane = add_lane(table, 1.0)
      assert_nil table.add_lane(1.0), "one is coming already"
      table.ready(lane, 1.5)
      second = add_lane(table, 2.0)
      assert_equal [0, 1], [lane.index, second.index]
      table.ready(second, 2.5)
      assert_nil table.add_lane(3.0)
      table.ended(lane, 4.0)
      assert_equal 0, add_lane(table, 5.0).index
    end

    def test_relief_workers_are_bounded
      { 2 => 4, 6 => 6 }.each do |size, most|
        table = serving(size, slots: 20)
        reliefs = Array.new(most) { table.add_relief(1.0).worker }
        assert_equal (0...most).to_a, reliefs.map(&:index)
        assert_nil table.add_relief(1.0), "there are #{most}"
        table.ended(reliefs.first, 1.0)
        assert_equal 0, table.add_relief(1.0).worker.index
      end
    end

    def test_a_worker_that_boots_for_another_reason_keeps_no_relief_from_coming
      table = serving(2, slots: 20)
      table.ended(table[101], 1.0)
      boot(table, 1.0)
      assert_equal :relief, table.add_relief(1.0).worker.kind
      table.stop
      assert_nil table.add_relief(2.0)
    end

    def test_no_relief_takes_the_last_slot
      table = serving(2, slots: 4)
      table.ready(table.add_relief(1.0).worker, 1.0)
      assert_nil table.add_relief(1.0)
    end

    def test_a_lane_worker_that_cannot_boot_is_not_tried_again_at_once
      table = serving(2)
      assert_equal :boot, table.ended(add_lane(table, 1.0), 2.0)
      assert_nil table.add_lane(2.0 + WorkerTable::LANE_DELAY - 0.1)
      assert table.add_lane(2.0 + WorkerTable::LANE_DELAY)
    end

    def test_one_worker_alone_gets_no_lane_worker
      assert_nil serving(1).add_lane(1.0)
    end

    def test_a_lane_worker_goes_when_it_has_had_nothing_to_do
      table = serving(2)
      lane = add_lane(table, 1.0)
      table.ready(lane, 1.0)
      table.lane_busy(lane, 5.0)
      assert_empty table.due(5.0 + WorkerTable::LANE_IDLE - 0.1)
      assert_equal [[WorkerTable::Drain, 0, 2]], kinds(table.due(5.0 + WorkerTable::LANE_IDLE))
    end

    def test_a_restart_has_the_lane_workers_go
      table = serving(2)
      lane = add_lane(table, 1.0)
      table.ready(lane, 1.0)
      table.restart
      assert_includes kinds(table.due(2.0)), [WorkerTable::Drain, 0, 2]
    end

    private

    def add_lane(table, now)
      table.add_lane(now).worker.tap { |worker| table.forked(worker, 900 + worker.index) }
    end

    def workers(size, slots: 12, boot_timeout: 60.0, drain_timeout: 30.0)
      WorkerTable.new(size, slots:, boot_timeout:, drain_timeout:)
    end

    # A table whose workers serve, with the pids 100, 101 …
    def serving(size, **options)
      table = workers(size, **options)
      boot(table, 0.0)
      table.each { |worker| table.ready(worker, 0.0) }
      table
    end

    # Does what the supervisor does with the forks that are due.
    def boot(table, now)
      @pid ||= 99
      table.due(now).each { |action| table.forked(action.worker, @pid += 1) if action.is_a?(WorkerTable::Fork) }
    end

    def fail_boots(table, index, count)
      now = 0.0
      table.ended(table.find { |worker| worker.index == index }, now)
      count.times do
        boot(table, now)
        worker = table.find(&:booting?)
        table.ended(worker, now) if worker
        now = table.next_deadline(now) || now
      end
    end

    def finish_restart(table, now)
      20.times do
        boot(table, now)
        table.select(&:booting?).each { |worker| table.ready(worker, now) }
        yield if block_given?
        table.select(&:leaving?).each { |worker| table.ended(worker, now) }
        now += 0.1
      end

      refute_predicate table, :restarting?
    end

    def kinds(actions) = actions.map { |action| [action.class, action.worker.index, action.worker.slot] }
  end
end
