# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  class CLI
    # What is printed of what a server says.
    # Covers control/findings.rb, control/humanize.rb
    class StatusTableTest < Test
      WORKER = {
        index: 0, kind: "regular", pid: 4712, age: 7300.0, state: "serving", stalled: nil, connections: 40, full: false, in_flight: 3,
        streams: 0, queued: 0, oldest_wait: 0.0, requests: 1_000_000, errors: 0, refused: 0, turned_away: 0, timed_out: 0,
        stalls: 0, standbys: 0, handed: 0, received: 0, restarts: 0, heartbeat_age: 0.0, database: { open: 0, waiting: 0 }, lane: {}, pools: [],
        pools_age: nil
      }.freeze
      private_constant :WORKER

      def test_it_is_read_at_a_glance
        one = worker(requests: 1_000_000)
        other = worker(index: 1, pid: 4713, requests: 500)
        before = report(one, { **other, requests: 400 }, cpu: { 4712 => 10.0, 4713 => 1.0 }, at: 100.0)
        now = report({ **one, requests: 1_002_468 }, other, cpu: { 4712 => 11.0, 4713 => 1.02 }, at: 102.0, before:)

        assert_equal <<~TEXT, table(now).lines.drop(2).join

          worker  process  age  state    connections  running  waiting  longest   requests  per second   CPU   memory
          0          4712  2 h  serving           40        3        0        -  1,002,468       1,234  50 %  120 MiB
          1          4713  2 h  serving           40        3        0        -        500          50   1 %  120 MiB
          all                                     80        6        0        -  1,002,968       1,284  51 %  240 MiB

          No problems.
        TEXT
      end

      def test_it_says_which_server_it_is
        text = table(report(worker))

        assert_match(%r{\AFairlead 0\.1\.0 in /app, process 4711, http://127\.0\.0\.1:9292\nsince \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(5 h\), Ruby 3\.3\.8 with YJIT, production, hot restart 2\n}, text)
      end

      def test_what_seldom_happens_has_a_column_once_it_has
        refute_match(/stalls|given|errors/, table(report(worker)))
        assert_match(/  stalls  given\n.*  2      7\n/, table(report(worker(stalls: 2, handed: 7))))
      end

      def test_one_worker_has_no_sum
        refute_match(/^all/, table(report(worker)))
      end

      def test_a_worker_beside_the_regular_ones_is_named_and_comes_last
        rows = table(report(worker(kind: "relief", pid: 1), worker(index: 1), worker)).lines

        assert_equal %w[0 1 relief], rows[4..6].map { |row| row.split.first }
      end

      def test_since_it_began_is_said_of_a_worker_that_was_not_there_before
        before = report(worker, cpu: { 4712 => 10.0 }, at: 100.0)
        now = report(worker(pid: 5, age: 2.0, requests: 10), cpu: { 5 => 1.0 }, at: 101.0, before:)

        assert_equal [5.0, 50.0], now.to_h[:workers].first.values_at(:requests_per_second, :cpu)
      end

      def test_what_the_system_does_not_say_is_not_known
        now = report(worker, usage: ->(_pid) {}).to_h

        assert_equal [nil] * 4, now[:workers].first.values_at(:cpu, :memory, :suspended, :descriptors)
        assert_match(/ -       -$/, StatusTable.new(now).to_s)
      end

      def test_what_stalls_is_its_state_and_is_said_in_words
        text = table(report(worker(stalled: { kind: "stuck", seconds: 3.24 })))

        assert_match(/  stuck 3\.2 s  /, text)
        assert_includes text, "Worker 0 (process 4712): for 3.2 s, a request sleeps in C with Ruby's lock; no other request of this " \
                              "worker runs. See `fairlead stalls`.\n"
      end

      def test_a_worker_without_descriptors_is_said_in_words
        assert_includes table(report(worker(full: true))),
                        "Worker 0 (process 4712) has no file descriptors left (ulimit -n): new connections go to other workers, or wait.\n"
      end

      def test_descriptors_that_are_nearly_used_up_are_said_in_words
        said = ->(open, **facts) { table(report(worker(**facts), usage: ->(_) { usage(descriptors: { open:, limit: 1024 }) })) }

        assert_includes said[820], "Worker 0 (process 4712) has 820 of 1,024 file descriptors open (ulimit -n), 40 of them for clients. " \
                                   "Raise the limit, or find what the app leaves open.\n"
        assert_includes said[819], "No problems."
        assert_equal 1, said[1000, full: true].scan("descriptors").size
      end

      def test_memory_that_is_nearly_used_up_is_said_in_words
        said = ->(used) { table(report(worker, memory_limit: ->(pid) { MemoryLimit.new(used: used << 20, limit: pid << 20) })) }

        assert_includes said[4300], "Memory runs out: 4,300 MiB of the 4,712 MiB are used that the system allows (cgroup), and beyond that " \
                                    "it ends processes. Raise the limit, run fewer workers, or have those replaced that grow (recycle_memory).\n"
        assert_includes said[4000], "No problems."
      end

      def test_a_worker_that_has_grown_is_said_in_words
        said = ->(limit, **facts) { table(report(worker(**facts), limits: { recycle_memory: limit << 20 })) }

        assert_includes said[130], "Worker 0 (process 4712) takes 120 MiB of 130 MiB (recycle_memory): it is to be replaced. If that comes " \
                                   "often, raise the limit, or find what grows.\n"
        assert_includes said[140], "No problems."
        assert_includes said[130, kind: "relief"], "No problems."
      end

      def test_a_line_is_said_in_words_with_its_cause
        assert_includes table(report(worker(queued: 120, oldest_wait: 1.26, in_flight: 1000))),
                        "120 requests wait for worker 0 (process 4712), the first for 1.3 s: it runs as many requests as it may (1,000, in_flight)."
        assert_includes table(report(worker(queued: 120, oldest_wait: 12.6, age: 10.0), cpu: { 4712 => 9.8 })),
                        "the first for 13 s: it is busy (98 % of a core)."
        assert_includes table(report(worker(queued: 2, oldest_wait: 0.01))), "No problems."
      end

      def test_a_pool_that_is_full_is_said_in_words
        text = table(report(worker(pools_age: 0.5, pools: [pool(pool: "cache"), pool(in_use: 5, connections: 5, waiting: 12, oldest_wait: 2.34)])))

        assert_match(/MiB  6 of 7, 12 wait\n/, text)
        assert_includes text, "12 requests of worker 0 (process 4712) wait for a database connection, the first for 2.3 s: " \
                              "its pool primary is full (5 of 5 in use).\n"
      end

      def test_a_budget_that_is_spent_is_said_in_words
        pools = [pool(size: 90, in_use: 4, connections: 4, waiting: 1, oldest_wait: 1.0)]
        one = worker(database: { open: 5, waiting: 1 }, pools:, pools_age: 0.5)
        text = table(report(one, worker(index: 1, pid: 4713, database: { open: 85, waiting: 0 })))

        assert_includes text, "1 request of worker 0 (process 4712) waits for a database connection, the first for 1 s: it has 5 " \
                              "of the 90 that all workers share (database_connections), and all together have 90.\n"
        assert_match(/4 of 5, 1 wait\n.*         - of 85\n.* 4 of 90, 1 wait\n/, text)
      end

      def test_that_some_are_turned_away_is_said_in_words_while_it_lasts
        one = worker(refused: 12, turned_away: 10)
        before = report(one, worker(index: 1, pid: 4713), at: 100.0)
        now = report({ **one, refused: 262, turned_away: 260 }, worker(index: 1, pid: 4713), at: 102.0, before:)
        later = report({ **one, refused: 262, turned_away: 260 }, worker(index: 1, pid: 4713), at: 103.0, before: now)

        assert_includes table(now), "More requests arrive than the workers can serve: 125 a second get 503, either at once (queue_target) " \
                                    "or after a long wait (queue_timeout)."
        assert_match(/refused  turned away\n.* 262          260\n/, table(now))
        assert_includes table(later), "No problems."
      end

      def test_on_a_narrow_terminal_there_are_more_tables_and_no_line_is_too_long
        full = table(report(busy, worker(kind: "relief", pid: 12_345_678)))
        titles = ->(text) { text.scan(/per second|[a-z]{4,}|CPU/i) }

        [40, 60, 80, 100].each do |width|
          lines = StatusTable.new(report(busy, worker(kind: "relief", pid: 12_345_678)).to_h, width:).to_s.lines(chomp: true)

          assert_operator lines.map(&:size).max, :<=, width, lines.join("\n")
          assert_empty titles[full] - titles[lines.join("\n")], "all of it is there"
          assert_equal lines.grep(/^worker /).size, lines.grep(/^relief 0 /).size
        end
        assert_operator full.lines.map(&:size).max, :>, 160
      end

      def test_what_fits_is_one_table
        wide = table(report(worker, worker(index: 1, pid: 4713)))
        width = wide.lines(chomp: true)[3..].map(&:size).max

        assert_equal 1, StatusTable.new(report(worker, worker(index: 1, pid: 4713)).to_h, width:).to_s.scan(/^worker/).size
        assert_equal 2, StatusTable.new(report(worker, worker(index: 1, pid: 4713)).to_h, width: width - 1).to_s.scan(/^worker/).size
      end

      def test_what_has_gone_wrong_is_said_in_words
        text = table(report(worker(restarts: 2), failure: "config.ru:1: nonsense\nmore"))

        assert_includes text, "2 predecessors of worker 0 (process 4712) ended unexpectedly. The log says why.\n"
        assert_includes text, "New code could not be started: config.ru:1: nonsense\n"
        assert_includes table(report(worker(state: "booting"))), "No worker serves yet."
        assert_includes table(report(worker, usage: ->(_) { usage(suspended: true) })),
                        "A signal has suspended worker 0 (process 4712). Continue it with kill -CONT 4712."
      end

      def test_durations_are_short
        said = { 0 => "0 s", 0.123 => "0.12 s", 9.94 => "9.9 s", 59.6 => "60 s", 600 => "10 min", 7300 => "2 h", 432_000 => "5 d" }

        said.each { |seconds, text| assert_equal text, Humanize.duration(seconds) }
      end

      private

      def busy
        worker(stalled: { kind: "computing", seconds: 3.2 }, connections: 12_345, queued: 120, oldest_wait: 12.6, streams: 5, errors: 7,
               refused: 262, turned_away: 260, stalls: 40, standbys: 3, handed: 1_000, received: 2_000,
               database: { open: 5, waiting: 12 })
      end

      def worker(**facts) = { **WORKER, **facts }

      def pool(**facts)
        { pool: "primary", role: "writing", shard: "default", size: 5, connections: 2, in_use: 1, idle: 1, waiting: 0, oldest_wait: 0.0,
          timeouts: 0, **facts }
      end

      def server(*workers, failure: nil, limits: {})
        {
          pid: 4711, folder: "/app", tag: "app", addresses: ["http://127.0.0.1:9292"],
          restarts: { generation: 2, serving: true, begun: 2, failed: nil, failure: },
          status: { version: "0.1.0", ruby: "3.3.8", yjit: true, environment: "production", started_at: Time.now.to_f - 18_000,
                    limits: { in_flight: 1000, database_connections: 90, **limits }, workers:, routes: [] }
        }
      end

      def report(*workers, cpu: Hash.new(0.0), usage: ->(pid) { usage(cpu: cpu[pid]) }, memory_limit: ->(_) {}, before: nil, at: Clock.now, **facts)
        StatusReport.new(server(*workers, **facts), usage:, memory_limit:, before:, at:)
      end

      def usage(**facts) = ProcessUsage.new(cpu: 0.0, memory: 120 << 20, suspended: false, descriptors: nil, **facts)

      def table(report) = StatusTable.new(report.to_h).to_s
    end
  end
end
