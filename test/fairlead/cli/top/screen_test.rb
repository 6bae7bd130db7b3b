# frozen_string_literal: true

require_relative "../../../helper"

module Fairlead
  class CLI
    # What `fairlead top` shows of a snapshot, on terminals of any size.
    # Covers cli/top/tables.rb, cli/top/text.rb
    class TopScreenTest < Test
      WORKER = {
        index: 0, kind: "regular", pid: 4712, age: 7300.0, state: "serving", stalled: nil, suspended: false, connections: 40, full: false,
        in_flight: 3, streams: 1, queued: 2, oldest_wait: 0.25, requests: 1_000_000, requests_per_second: 1234.0, cpu: 71.0,
        memory: 142 << 20, errors: 7, refused: 3, stalls: 2, restarts: 0, pools: []
      }.freeze
      POOL = { pool: "primary", role: "writing", shard: "default", size: 5, connections: 3, in_use: 2, waiting: 0, oldest_wait: 0.0, timeouts: 0 }.freeze
      STALL = { seconds: 3.2, count: 4, total: 5.0, kind: "stuck", route: "GET /reports/:id", action: nil, at: "app/models/report.rb:12" }.freeze
      private_constant :WORKER, :POOL, :STALL

      def test_workers_are_seen_at_a_glance
        other = worker(index: 1, pid: 4713, stalled: { kind: "stuck", seconds: 3.2 }, requests_per_second: 0.0, cpu: 0.4)

        assert_equal <<~TEXT, screen(snapshot(worker, other), width: 100).to_s
          Fairlead 0.1.0  shop, production
          1,234 req/s  6 running  4 waiting  80 open  CPU 71 %  284 MiB  14 errors  up 2 h

          worker  process  state        run  wait  longest  req/s   CPU   memory  open   requests  errors
          0          4712  serving        3     2   0.25 s  1,234  71 %  142 MiB    40  1,000,000       7
          1          4713  stuck 3.2 s    3     2   0.25 s      0   0 %  142 MiB    40  1,000,000       7
        TEXT
      end

      def test_a_worker_in_trouble_and_problems_stand_out
        lines = screen(snapshot(worker, worker(stalled: { kind: "stuck", seconds: 1 }), matters: ["Worker 0 is stuck."])).lines

        assert_equal ["Worker 0 is stuck."], styled(lines, :bad).grep_v(/MiB/)
        assert_equal(1, styled(lines, :bad).grep(/MiB/).size)
      end

      def test_no_line_is_wider_than_the_terminal_and_what_matters_stays
        [20, 40, 41, 60, 80, 120, 200].product([5, 12, 24, 60]) do |width, height|
          TopTables::ALL.each_key do |name|
            lines = screen(busy, width:, height:, view: view(name:)).lines

            assert_equal height, lines.size
            assert_operator lines.map { |line| TopText.width(line.text) }.max, :<=, width
          end
        end
        text = screen(busy, width: 40, height: 20).to_s

        assert_match(/^worker +state +run +wait/, text)
        assert_match(/^\? help  .*q quit/, text)
      end

      def test_pools_and_stalls_are_below_the_workers_and_have_views
        shown = snapshot(worker(pools: [POOL, { **POOL, pool: "cache" }]), worker(index: 1, pools: [{ **POOL, waiting: 9, oldest_wait: 0.5 }]),
          stalls: [STALL])

        assert_match(/^Database pools\npool     in use  open  size  waiting  longest  timeouts\nprimary       4     6    10        9    0\.5 s/, screen(shown).to_s)
        assert_match(%r{^Stalls\nlongest  times  together  why    request +at\n  3\.2 s      4       5 s  stuck  GET /reports/:id}, screen(shown).to_s)
        refute_match(/worker/, screen(shown, view: view(name: :pools)).to_s)
        assert_match(/cache/, screen(shown, view: view(name: :pools)).to_s)
        assert_match(/No worker has reported a database pool/, screen(snapshot(worker), view: view(name: :pools)).to_s)
      end

      def test_routes_and_what_they_wait_for
        times = { p50: 0.0214, p99: 1.23, kinds: { cpu: 0.5, database: 1.5, gc: 0.001 },
                  routes: [{ route: "articles#show", count: 1234, requests: 0.55, errors: 0.0, p50: 0.0004, p99: nil, kinds: { cpu: 0.5, database: 1.5 } },
                           { route: "other", count: 1, requests: 12.3, errors: 2.0, p50: nil, p99: nil, kinds: { cpu: 0.0 } }] }

        assert_equal <<~TEXT, screen({ **snapshot(worker), times: }, view: view(name: :routes)).to_s
          Fairlead 0.1.0  shop, production
          1,234 req/s  3 running  2 waiting  40 open  CPU 71 %  142 MiB  p50 21 ms  p99 1.2 s  7 errors  up 2 h
          time: database 75 %, cpu 25 %

          route          req/s     p50  p99  errors/s  at once  requests  time
          articles#show    0.6  0.4 ms    -         0        2     1,234  database 75 %, cpu 25 %
          other             12       -    -       2.0        0         1  -
        TEXT
      end

      def test_requests_in_flight_and_what_they_wait_for
        reported = [{ worker: 1, method: "GET", path: "/fast", route: "fast#show", age: 0.002, seen: 0.0, waits_for: "cpu", detail: nil },
                    { worker: 0, method: "POST", path: "/pay", route: "payments#create", age: 2.3, seen: 10.0, waits_for: "socket", detail: "pay.example:443" }]
        requests = RequestReports.now({ requests: { in_flight: reported } })
        shown = screen({ **snapshot(worker), requests: }, view: view(name: :flight))

        assert_match(%r{^ *age +request +now +at +worker +route\n *12 s +POST /pay +socket +pay\.example:443 +0 +payments#create\n *2 ms +GET /fast +cpu}, shown.to_s)
        assert_match(%r{POST /pay}, styled(shown.lines, :bad).join)
      end

      def test_it_sorts_by_each_column_in_turn
        shown = snapshot(worker(in_flight: 1, queued: 9), worker(index: 1, in_flight: 5, queued: 2))
        first = ->(sort) { screen(shown, height: 20, view: view(sort:)).to_s[/^(\d) /, 1] }
        sorted = ->(sort) { screen(shown, height: 20, view: view(sort:)).lines.last.text[/sort: (.+?)(?=  |$)/, 1] }

        assert_equal [["0", nil], ["1", "run"], ["0", "wait"]], (0..2).map { |sort| [first[sort], sorted[sort]] }
        assert_equal ["0", nil], [first[14], sorted[14]], "the first again"
      end

      def test_long_tables_scroll
        shown = snapshot(*Array.new(30) { |index| worker(index:) })
        numbers = ->(offset) { screen(shown, height: 16, view: view(offset:)).to_s.scan(/^(\d+) +\d{4} /).flatten.map(&:to_i) }

        assert_equal [*0..9], numbers[0]
        assert_equal [*3..12], numbers[3]
        assert_equal [*20..29], numbers[999]
        assert_match(/^21 to 30 of 30$/, screen(shown, height: 16, view: view(offset: 999)).to_s)
      end

      def test_what_comes_from_clients_is_no_command_to_the_terminal
        lines = screen(snapshot(worker, tag: "a\e[2Jb\u202ec", stalls: [{ **STALL, route: "GET /\e]0;x\a\xFFü/日本語" }])).lines

        assert_empty(lines.select { |line| line.text.match?(/[[:cntrl:]\u202e]/) })
        assert_match(%r{GET /\?\]0;x\?.ü/日本語  app/models}, lines.map(&:text).join("\n"))
      end

      def test_wide_characters_take_two_columns
        assert_equal [6, "日本…", " 日本"], [TopText.width("日本語"), TopText.cut("日本語日", 6), TopText.fit("日本", 5, left: false)]
        assert_equal "e\u0301x", TopText.cut("e\u0301x", 2)
      end

      def test_a_server_that_has_gone_is_said
        assert_match(/^The server has not answered for 12 s\. Asking again each second\.$/, screen(snapshot(worker), gone: 12.2).to_s)
      end

      def test_requests_per_second_are_a_curve_beside_the_title
        assert_match(/production +▁▅█$/, screen(snapshot(worker), history: [0, 5, 10]).to_s)
        refute_match(/▁/, screen(snapshot(worker), width: 30, history: [0, 5, 10]).to_s)
        assert_match(/production +paused$/, screen(snapshot(worker), view: view(paused: true)).to_s)
      end

      def test_help
        text = screen(snapshot(worker), width: 40, height: 20, view: view(help: true)).to_s

        assert_match(/^s +sort by the next column/, text)
        refute_match(/^worker/, text)
      end

      private

      def screen(snapshot, width: 110, **) = TopScreen.new(snapshot, width:, **)

      def view(**) = TopScreen::View.new(**)

      def styled(lines, style) = lines.select { |line| line.style == style }.map(&:text)

      def worker(**facts) = { **WORKER, **facts }

      def busy
        snapshot(worker(stalled: { kind: "computing", seconds: 3.2 }, pools: [POOL]), worker(kind: "relief", pid: 12_345_678),
          stalls: [STALL] * 9, matters: ["12 requests of worker 0 (process 4712) wait for a database connection: its pool is full."] * 3)
      end

      def snapshot(*workers, stalls: [], matters: [], tag: "shop")
        sum = ->(key) { workers.sum { |worker| worker[key] } }
        total = %i[requests_per_second in_flight queued connections cpu memory errors].to_h { |key| [key, sum[key]] }
        { version: "0.1.0", tag:, environment: "production", started_at: 1_000.0, now: 8_200.0, workers:, total:, stalls:, matters: }
      end
    end
  end
end
