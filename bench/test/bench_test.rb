# frozen_string_literal: true

require_relative "../../test/helper"
require "stringio"
require_relative "../harness/cli"

module Bench
  class StatisticsTest < Minitest::Test
    def test_the_median_of_an_odd_number_of_rounds_is_the_middle_one
      assert_equal 3, Statistics.summary([9, 1, 3]).median
    end

    def test_the_median_of_an_even_number_of_rounds_is_between_the_middle_ones
      assert_in_delta 2.5, Statistics.summary([1, 2, 3, 90]).median
    end

    def test_a_failed_round_is_left_out_of_the_summary
      summary = Statistics.summary([5, nil, 7])

      assert_equal [6.0, 5, 7, 2], summary.deconstruct_keys(nil).values_at(:median, :minimum, :maximum, :count)
    end

    def test_without_any_value_there_is_no_summary
      assert_nil Statistics.summary([nil, nil])
    end

    def test_the_interval_of_a_median_leaves_out_what_is_rare
      assert_equal [2, 9], Statistics.interval([10, *1..9])
      assert_equal [1, 6], Statistics.interval((1..6).to_a)
      assert_nil Statistics.interval((1..5).to_a), "five alike may be chance"
    end

    def test_ratios_are_of_the_same_round
      assert_equal [2.0, 0.5], Statistics.paired_ratios([10, 20], [5, 40])
    end

    def test_a_round_in_which_one_failed_has_no_ratio
      assert_equal [3.0], Statistics.paired_ratios([10, nil, 9, 8], [nil, 5, 3, 0])
    end
  end

  class WrkTest < Minitest::Test
    OUTPUT = <<~TEXT
      Running 2s test @ http://127.0.0.1:9292/
        1 threads and 32 connections
        Thread Stats   Avg      Stdev     Max   +/- Stdev
          Latency     2.66ms    1.24ms  30.11ms   92.05%
      Requests/sec:  11622.05
      report {"requests":23000,"microseconds":2000000,"bytes":3100000,"connect":1,"read":2,"write":3,"timeout":4,"status":1000,"mean":2660.5,"max":30110.0,"p50":2500.0,"p75":2700.0,"p90":3000.0,"p99":7400.0,"p999":20000.0}
    TEXT

    def test_answers_with_an_error_status_are_not_counted_among_the_requests_per_second
      report = Wrk.parse(OUTPUT)

      assert_in_delta 11_000, report[:requests_per_second]
      assert_equal 1000, report[:non_2xx]
      assert_equal 23_000, report[:requests]
    end

    def test_errors_of_all_kinds_are_summed_and_kept
      report = Wrk.parse(OUTPUT)

      assert_equal 10, report[:errors]
      assert_equal [1, 2, 3, 4], report.values_at(:connect, :read, :write, :timeout)
    end

    def test_latencies_are_in_milliseconds
      assert_equal [2.5, 7.4, 20.0, 30.11], Wrk.parse(OUTPUT).values_at(:p50, :p99, :p999, :max)
    end

    def test_an_output_without_a_report_is_a_failure_that_shows_it
      error = assert_raises(Wrk::Failed) { Wrk.parse("unable to connect to 127.0.0.1:1 Connection refused\n") }

      assert_match(/Connection refused/, error.message)
    end

    def test_wrk_prints_the_report_that_is_parsed
      skip "wrk is not installed" unless system("command -v wrk >/dev/null")

      answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
      server = TCPServer.new("127.0.0.1", 0)
      thread = Thread.new { loop { serve(server.accept, answer) } }
      address = "http://127.0.0.1:#{server.local_address.ip_port}"
      target = Struct.new(:address) { def url(path) = "#{address}#{path}" }.new(address)
      report = Wrk.new(connections: 1).run(target, 1)

      assert_operator report[:requests_per_second], :>, 10
      assert_equal [0, 0], report.values_at(:errors, :non_2xx)
      assert_operator report[:p50], :<=, report[:p99]
    ensure
      thread&.kill&.join
      server&.close
    end

    private

    def serve(socket, answer)
      while socket.gets("\r\n\r\n")
        socket.write(answer)
      end
    rescue SystemCallError
      nil
    ensure
      socket.close
    end
  end

  class ComparisonTest < Minitest::Test
    def run_of(server, round, speed, **others)
      { server:, round:, requests_per_second: speed, errors: 0, non_2xx: 0, **others }
    end

    def comparison
      Comparison.new([
        run_of("puma", 1, 10, p99: 4.0), run_of("fairlead", 1, 100, p99: 1.0), run_of("itsi", 1, 40),
        run_of("fairlead", 2, 120, p99: 3.0), run_of("itsi", 2, 80), run_of("puma", 2, 10, p99: 2.0),
        run_of("itsi", 3, 50), { server: "puma", round: 3, failed: "did not start" },
        run_of("fairlead", 3, 90, p99: 2.0)
      ], order: %w[fairlead puma itsi])
    end

    def test_ratios_are_ours_divided_by_theirs_round_by_round_whatever_the_order
      ratio = comparison.ratio("itsi", :requests_per_second)

      assert_in_delta 1.8, ratio.median
      assert_in_delta 1.5, ratio.minimum
      assert_in_delta 2.5, ratio.maximum
    end

    def test_a_peer_that_failed_in_a_round_counts_nothing_there
      assert_equal 2, comparison.ratio("puma", :requests_per_second).count
      assert_equal ["did not start"], comparison.failures("puma")
    end

    def test_the_best_of_several_peers_is_taken_anew_in_each_round_in_which_none_of_them_failed
      runs = [[1, 50, 20], [2, 10, 25]].flat_map do |round, itsi, puma|
        [run_of("fairlead", round, 100), run_of("itsi", round, itsi), run_of("puma", round, puma)]
      end
      runs.push(run_of("fairlead", 3, 100), { server: "itsi", round: 3, failed: "ended" }, run_of("puma", 3, 10))

      assert_in_delta 3.0, Comparison.new(runs, order: %w[fairlead]).times(:requests_per_second, "itsi", "puma")
    end

    def test_a_peer_that_is_not_there_gives_no_ratio_nor_do_others_instead_of_it
      assert_nil comparison.times(:requests_per_second, "falcon")
      assert_nil comparison.times(:requests_per_second, "itsi", "falcon")
      assert_nil comparison.ratio("falcon", :requests_per_second)
    end

    REPEATED = [
      { server: "fairlead", round: 1, slowest: 110, errors: 0, non_2xx: 0,
        misses: [{ slowest: 130, errors: 0, non_2xx: 0, control: 104 }] },
      { server: "fairlead", round: 2, slowest: 100, errors: 0, non_2xx: 0 },
      { server: "puma", round: 1, slowest: 260, errors: 0, non_2xx: 0 },
      { server: "puma", round: 2, slowest: 200, errors: 0, non_2xx: 0 }
    ].freeze

    def test_of_runs_that_were_repeated_the_first_is_compared_and_the_last_judged
      load = JSON.parse(JSON.generate(runs: REPEATED, summary: { fairlead: {}, puma: {} }))
      [Comparison.new(REPEATED), Comparison.read(load)].each do |repeated|
        assert_equal [115, 100, 130], repeated.summary("fairlead", :slowest).deconstruct_keys(nil).values_at(:median, :minimum, :maximum)
        assert_equal [0.5, 0.5], repeated.ratio("puma", "slowest").deconstruct_keys(nil).values_at(:minimum, :maximum)
        assert_equal [true, false], [110, 109].map { |most| repeated.within?(:slowest, most) }
        assert_equal [[130, 104]], repeated.misses.map { |run| run.values_at(:slowest, :control) }
        assert_predicate repeated, :faultless?
      end
    end

    def test_an_error_in_a_run_that_was_repeated_is_one
      runs = Marshal.load(Marshal.dump(REPEATED)).each { |run| run[:misses]&.first&.store(:errors, 2) }

      assert_equal 2, Comparison.new(runs).total("fairlead", :errors)
      refute_predicate Comparison.new(runs), :faultless?
    end

    def test_the_reference_is_the_first_in_the_given_order_that_ran
      runs = [run_of("a", 1, 2), run_of("b", 1, 1)]

      assert_equal "a", Comparison.new(runs).reference
      assert_equal %w[b a], Comparison.new(runs, order: %w[c b a]).servers
      assert_equal "b", Comparison.new(runs, order: %w[c b a]).reference
    end

    def test_one_error_or_one_failed_round_is_a_fault
      assert_predicate comparison, :faultless?
      refute_predicate Comparison.new([run_of("fairlead", 1, 5, errors: 1)]), :faultless?
      refute_predicate Comparison.new([run_of("fairlead", 1, 5, non_2xx: 1)]), :faultless?
      refute_predicate Comparison.new([{ server: "fairlead", round: 1, failed: "ended" }]), :faultless?
    end

    def test_the_table_shows_medians_ranges_ratios_errors_and_failed_runs
      table = Table.new(comparison, main: :requests_per_second).to_s.lines(chomp: true)

      assert_match(/\A +requests\/s +fairlead ÷ it +p99 ms +errors +non-2xx\z/, table[0])
      assert_includes table, table.grep(/\Afairlead +100 \(90–120\) +— +2\.00 \(1\.00–3\.00\) +0 +0\z/).first
      assert_includes table, table.grep(/\Apuma +10 \(10–10\), 1 failed +11\.00 \(10\.00–12\.00\)/).first
      assert_equal 4, table.size
    end

    def test_connections_that_a_server_closed_are_shown_where_there_were_any_are_in_the_result_and_mark_it
      runs = [["fairlead", 0], ["itsi", 600], ["itsi", 400]].each_with_index.map do |(server, closed), round|
        run_of(server, round, 10, closed_by_server: closed)
      end
      closing = Comparison.new(runs, order: %w[fairlead])
      table = Table.new(closing, main: :requests_per_second).to_s
      entries = closing.servers.map { |server| JSON.parse(JSON.generate(Results.summarize(closing, server, :requests_per_second))) }

      assert_match(/errors +non-2xx +closed\nfairlead .* 0 +0 +0\nitsi .* 0 +0 +1,000\n\z/, table)
      assert_equal [0, 1000], entries.map { |entry| entry["closed_by_server"] }
      assert_equal [false, true], entries.map { |entry| Report::Faults.any?(entry) }
    end

    def test_the_table_groups_thousands
      runs = [run_of("fairlead", 1, 112_345.6, errors: 1234)]

      table = Table.new(Comparison.new(runs), main: :requests_per_second).to_s

      assert_match(/^fairlead +112,346 +— +1,234 +0$/, table)
    end
  end

  class WorkloadTest < Minitest::Test
    Workload.names.each do |name|
      define_method("test_#{name}_names_an_app_loads_peers_and_aims_that_exist") do
        workload = Workload.load(name)

        assert_path_exists workload.app_path
        assert_kind_of String, workload.title
        refute_empty workload.loads
        assert_empty workload.aims.map(&:load).uniq - workload.loads.map(&:name)
        workload.peers.each { |label| assert_kind_of Server, Server.for(label) }
      end

      define_method("test_the_aims_of_#{name}_are_open_when_nothing_was_measured") do
        nothing = Comparison.new([{ server: "fairlead", round: 1, failed: "did not start" }])

        Workload.load(name).aims.each { |aim| refute aim.test.call(nothing), aim.text }
      end
    end

    WORKLOADS_WITH_RIVALS = Workload.names.map { |name| Workload.load(name) }.to_h do |workload|
      [workload, workload.aims.select { |aim| aim.text.match?(/each peer|best peer|next fastest/) }]
    end.reject { |_, aims| aims.empty? }

    WORKLOADS_WITH_RIVALS.each do |workload, aims|
      define_method("test_what_#{workload.name}_aims_at_beside_all_peers_is_open_where_one_is_missing") do
        figures = { round: 1, requests_per_second: 10.0, p99: 10.0, errors: 0, non_2xx: 0 }
        workload.peers.each do |missing|
          runs = ["fairlead", *workload.peers - [missing]].map { |server| { server:, **figures } }
          aims.each { |aim| assert_nil aim.test.call(Comparison.new(runs, order: %w[fairlead])), "#{aim.text}, without #{missing}" }
        end
      end
    end

    def test_a_bound_is_reached_by_the_last_of_the_runs_that_were_repeated
      aim = Workload.load("mixed").aims.find { |found| found.load == "free" }
      verdicts = [110, 121].map do |last|
        run = { server: "fairlead", round: 1, slowest: last, errors: 0, non_2xx: 0, misses: [{ slowest: 130, control: 104 }] }
        aim.test.call(Comparison.new([run]))
      end

      assert_equal [true, false], verdicts
    end

    # What is measured one after the other, of a load that may take 120 ms at most.
    def fairly(*values)
      load = Workload::Load.new(name: "a", generator: Stall.new("/free"), ideal: nil, most: 120)
      measured = []
      figures = load.in_fairness({ slowest: values.shift }) do |repeated|
        measured << repeated.generator.connections
        { slowest: values.shift }
      end
      [figures[:slowest], figures[:misses]&.map { |miss| miss.values_at(:slowest, :control) }, measured]
    end

    def test_a_run_within_its_bound_is_not_repeated
      assert_equal [120, nil, []], fairly(120)
    end

    def test_a_miss_is_repeated_once_after_a_control_and_counts_if_it_misses_again
      assert_equal [110, [[130, 104]], [50, 55]], fairly(130, 104, 110)
      assert_equal [140, [[130, 104]], [50, 55]], fairly(130, 104, 140)
    end

    def test_a_miss_is_repeated_more_often_only_while_the_control_misses_too
      assert_equal [125, [[130, 180], [150, 104]], [50, 55, 50, 55]], fairly(130, 180, 150, 104, 125)
      assert_equal 155, fairly(*Array.new(8, 150), 155).first
    end

    def test_a_run_without_the_figure_is_a_miss
      assert_equal [110, [[nil, 104]], [50, 55]], fairly(nil, 104, 110)
      assert_equal [nil, [[130, 104]], [50, 55]], fairly(130, 104, nil)
    end

    def test_a_run_that_failed_is_not_repeated
      load = Workload::Load.new(name: "a", generator: Stall.new("/free"), ideal: nil, most: 120)

      assert_equal({ failed: "ended" }, load.in_fairness({ failed: "ended" }) { flunk "it was" })
    end

    def test_each_run_has_to_be_within_its_bound
      aim = Workload.load("mixed").aims.find { |one| one.load == "free-beside-one" }
      reached = lambda do |*values|
        runs = values.each_with_index.map { |elsewhere, round| { server: "fairlead", round:, errors: 0, non_2xx: 0, elsewhere: } }
        aim.test.call(Comparison.new(runs))
      end

      assert reached.call(110, 140)
      refute reached.call(110, 141)
      refute reached.call(110, nil)
    end

    def test_an_unknown_workload_is_refused_with_those_there_are
      error = assert_raises(UsageError) { Workload.load("helo") }

      assert_match(/no workload helo; there are: .*hello, /, error.message)
    end

    def test_a_load_takes_the_place_of_that_of_its_name
      assert_equal [H2load], Workload.load("json-http2").loads.map { |load| load.generator.class }
    end

    def test_an_unknown_server_is_refused_with_those_there_are
      error = assert_raises(UsageError) { Server.for("pumas:5") }

      assert_match(/no server pumas; there are: .*puma/, error.message)
    end

    def test_what_follows_the_colon_is_the_setting
      assert_equal "HEAD~1", Server.for("fairlead:HEAD~1").setting
      assert_nil Server.for("puma").setting
    end
  end

  class OutcomeTest < Minitest::Test
    def outcome(runs, load: Workload.load("hello").loads.first)
      Outcome.new(load, runs, aims: [], order: %w[fairlead]).to_s
    end

    # So many rounds in which ours does so much of what the other does.
    def beside_ladderless(rounds, speed:, p99:)
      figures = { errors: 0, non_2xx: 0 }
      outcome((1..rounds).flat_map do |round|
        mood = 1 + (round % 3 * 0.01)
        [{ server: "fairlead", round:, requests_per_second: 100 * speed * mood, p99: 2 * p99 * mood, **figures },
         { server: "ladderless", round:, requests_per_second: 100.0, p99: 2.0, **figures }]
      end)
    end

    def test_what_was_repeated_is_told_beside_its_control
      runs = [{ server: "fairlead", round: 1, slowest: 110, errors: 0, non_2xx: 0, misses: [{ slowest: 130, control: 104 }, {}] }]
      load = Workload.load("mixed").loads.find { |found| found.name == "free" }

      assert_includes outcome(runs, load:), "  ! 130 in a run that was repeated; where nothing stalls: 104\n" \
                                            "  ! no answer in a run that was repeated; where nothing stalls: no answer"
    end

    def test_between_states_of_ours_the_interval_of_the_ratio_says_whether_they_differ
      same = beside_ladderless(8, speed: 0.99, p99: 0.99)

      assert_includes same, "  ✓ requests/s, fairlead ÷ ladderless: 0.990–1.010 with 95 % confidence, no difference\n"
      assert_match(/✓ p99, fairlead ÷ ladderless: .* no difference$/, same)
    end

    def test_fewer_requests_or_longer_waits_are_worse
      worse = beside_ladderless(8, speed: 0.9, p99: 1.1)
      better = beside_ladderless(8, speed: 1.1, p99: 0.9)

      assert_match(/✗ requests\/s, .* worse\n +✗ p99, .* worse$/, worse)
      assert_match(/✓ requests\/s, .* better\n +✓ p99, .* better$/, better)
    end

    def test_five_rounds_say_nothing_of_it
      assert_includes beside_ladderless(5, speed: 0.5, p99: 2),
        "  ? requests/s, fairlead ÷ ladderless: not to be told from fewer than six rounds"
    end
  end

  class PriceTest < Fairlead::Test
    def test_of_instructions_one_percent_more_is_the_limit_for_the_median
      instructions = Instructions.new(Workload.load("hello"), nil)
      counts = [10_100.0, 10_200.0].map do |ours|
        counted = [20_000.0, ours, 5_000.0, ours, ours]
        instructions.define_singleton_method(:of) { |server| server.label == "fairlead" ? counted.shift : 10_000.0 }
        instructions.report(%w[fairlead ladderless]).last
      end

      assert_equal ["  ✓ fairlead ÷ ladderless: 1.0100, at most 1.01", "  ✗ fairlead ÷ ladderless: 1.0200, at most 1.01"], counts
    end

    def test_it_is_saved_apart_from_what_is_published
      command = CLI.new
      options = command.instance_variable_set(:@options, Options.new(save: true))

      assert_equal %w[hello rails-find cpu-turns], command.send(:price_of, [])
      assert_predicate options, :whole?
      assert_operator Results.path("hello", options.kind), :end_with?, "/bench/results/price/hello.json"
      assert_operator Results.path("hello"), :end_with?, "/bench/results/hello.json"
    end

    # The first holds up the others, so that they come to be served at one go; the last of these ends when it is told.
    APP = <<~RUBY
      served = 0
      run lambda { |env|
        name = { 1 => "first", 3 => "last" }[served += 1]
        File.write(name, "") if name
        nil until name.nil? || File.exist?(name + "-ends")
        [200, {}, ["Hello World"]]
      }
    RUBY

    # More may come between a response and the next request than those may wait for each other: then once more.
    def test_without_the_ladder_responses_leave_together_too
      assert((1..5).any? { kept_while_another_runs? })
    end

    def kept_while_another_runs?
      with_server(APP, lint: false, files: { "ladderless.rb" => Servers::Ladderless::REMOVAL },
        ruby_flags: ["-r./ladderless.rb"]) do |server|
        first = ask(server, "first")
        others = [ask(server), ask(server)]
        server.write("first-ends", "")
        eventually("the last one runs") { File.exist?(server.path("last")) }
        kept = others.none? { |socket| socket.wait_readable(0.1) }
        server.write("last-ends", "")
        [first, *others].each { |socket| assert_match(/\AHTTP\/1.1 200/, socket.gets) }
        kept
      end
    end

    def ask(server, name = nil)
      server.connect.tap do |socket|
        socket.write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        eventually("#{name} runs") { File.exist?(server.path(name)) } if name
      end
    end
  end

  class GapsTest < Minitest::Test
    # The result of a workload as it is, with nothing missing.
    def result_of(workload)
      peers = workload.peers.to_h { |label| [label, Results.settings(Server.for(label), workload)] }
      servers = { "fairlead" => {}, **peers }
      runs = servers.keys.flat_map { |server| Array.new(server == "fairlead" ? 3 : 1) { |round| { server:, round: } } }
      loads = workload.loads.map { |load| { name: load.name, seconds: load.seconds, runs: }.compact }
      JSON.parse(JSON.generate(seconds: workload.seconds, loads:, servers:))
    end

    def setup
      @workload = Workload.load("hello")
      @result = result_of(@workload)
    end

    def test_the_result_of_a_workload_as_it_is_has_none
      assert_empty Gaps.of(@workload, @result)
      assert_equal ["not measured yet"], Gaps.of(@workload, nil)
    end

    def test_loads_and_peers_that_are_missing_are_named
      @result["loads"].pop
      @result["servers"].delete("itsi")

      assert_equal ["loads: c256", "peers: itsi"], Gaps.of(@workload, @result)
    end

    def test_a_peer_that_was_started_in_another_way_is_named
      @result["servers"]["puma"]["files"]["puma.rb"].sub!("threads 5", "threads 1")

      assert_equal ["with other settings than now: puma"], Gaps.of(@workload, @result)
    end

    def test_loads_that_were_measured_for_a_shorter_time_are_named
      @result["seconds"] = 3
      @result["loads"].first["seconds"] = 4

      assert_equal ["c4, c32, c256: 3 s of 4"], Gaps.of(@workload, @result)
    end

    def test_a_load_may_take_a_time_of_its_own
      workload = Workload.load("db-10x10")
      result = result_of(workload)

      assert_empty Gaps.of(workload, result)
      result["loads"].last["seconds"] = 6
      assert_equal ["c512: 6 s of 30"], Gaps.of(workload, result)
    end

    def test_fewer_than_three_rounds_of_ours_are_named_and_peers_without_any
      runs = @result["loads"].first["runs"]
      runs.first["failed"] = "ended"
      runs.each { |run| run["failed"] = "ended" if run["server"] == "itsi" }
      runs.reject! { |run| run["server"] == "agoo" }

      assert_equal ["c1: 2 rounds of 3, no round of itsi and agoo"], Gaps.of(@workload, @result)
    end
  end

  class MovementsOfFewRoundsTest < Minitest::Test
    # With three rounds of ours, in one of which the peer took part.
    def result(folder, name, slowest)
      runs = 3.times.map { |round| { server: "fairlead", round:, slowest: } } << { server: "puma", round: 0, slowest: 400 }
      load = { name: "free", main_figure: "slowest", runs:, summary: { fairlead: {}, puma: {} } }
      File.join(folder, name).tap { |path| File.write(path, JSON.generate(workload: "mixed", loads: [load])) }
    end

    def test_where_peers_took_part_in_few_rounds_our_own_figure_is_compared
      Dir.mktmpdir do |folder|
        movements = Movements.between(result(folder, "before", 100), result(folder, "after", 150))

        assert_match(/^WORSE +mixed free +slowest +100 → +150 \(\+50\.0 %\)\n1 of 1 figures moved/, movements.to_s)
      end
    end
  end

  # bench/ruby-yjit, with all that it calls replaced.
  class RubyWithYjitTest < Minitest::Test
    PROGRAM = File.expand_path("../ruby-yjit", __dir__)
    KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
    # Knows no mirror before its lists have been fetched.
    APT = <<~'SH'
      #!/bin/sh
      case "$*" in
        indextargets*) [ ! -e "$LISTS" ] || echo "Debian stable http://mirror.test/debian/" ;;
        "update -qq") : >"$LISTS" ;;
        *Dir::Etc::SourceList=*update) for word; do case $word in *SourceList=*) cat "${word#*=}" ;; esac; done ;;
      esac
    SH
    OTHERS = %w[gcc make autoconf bison dpkg-source rustc].to_h { |tool| [tool, "#!/bin/sh\n"] }.merge(
      "apt-get" => APT, "dpkg-query" => "#!/bin/sh\necho install ok installed\n", "sudo" => "#!/bin/sh\n\"$@\"\n"
    ).freeze

    def test_where_apt_has_no_lists_it_fetches_them_and_finds_the_mirror
      skip "needs Debian's keyring" unless File.exist?(KEYRING)

      Dir.mktmpdir do |folder|
        OTHERS.each { |name, script| File.write(File.join(folder, name), script, perm: 0o755) }
        environment = { "PATH" => "#{folder}:#{ENV.fetch("PATH")}", "LISTS" => File.join(folder, "lists"), "TMPDIR" => folder }
        output, = Open3.capture2e(environment, PROGRAM, "--prefix", File.join(folder, "ruby"))

        assert_includes output, "http://mirror.test/debian/ trixie main"
        assert_includes output, "apt-get source gave no ruby3.3 folder"
      end
    end
  end

  class ProcessTreeTest < Minitest::Test
    def setup
      skip "needs /proc" unless File.exist?("/proc/self/smaps_rollup")
    end

    # A shell and its child, which uses CPU until it has said so.
    def test_memory_and_cpu_are_those_of_all_descendants
      reader, writer = IO.pipe
      busy = "nil until Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) > 0.2; " \
        "puts :busy; $stdout.flush; sleep"
      pid = Process.spawn("#{RbConfig.ruby} --disable-gems -e '#{busy}' & wait", out: writer, pgroup: true)
      reader.gets
      tree = ProcessTree.new(pid)

      assert_equal 2, tree.pids.size
      assert_operator tree.cpu, :>=, 0.15
      memory = tree.memory
      assert_equal 2, memory[:processes]
      assert_operator memory[:pss], :>, 1
      assert_operator memory[:rss], :>=, memory[:pss]
      assert_operator memory[:peak_rss], :>, 1
    ensure
      Process.kill(:KILL, -pid)
      Process.wait(pid)
    end
  end

  class CommandLineTest < Minitest::Test
    def command(*arguments)
      status = nil
      output, errors = capture_io { status = CLI.run(arguments) }
      [status, output, errors]
    end

    def test_the_list_names_workloads_with_their_loads_and_peers
      status, output, = command("--list")

      assert_equal 0, status
      assert_match(/^hello +The smallest answer.*\n +loads: c1, c4, c32, c256; peers: .*falcon, puma$/, output)
    end

    def test_a_wrong_flag_or_workload_ends_with_one_line
      status, output, errors = command("nothing")

      assert_equal [2, ""], [status, output]
      assert_match(/\Abin\/bench: no workload nothing; there are: .*\n\z/, errors)
    end

    def test_a_wrong_server_or_load_is_told_before_anything_is_installed
      errors = [%w[--against pumas], %w[--only c33]].map { |choice| command("hello", "--ruby", "/missing", *choice).last }

      assert_match(/\Abin\/bench: no server pumas; there are: .*\n\z/, errors[0])
      assert_match(/\Abin\/bench: hello has no load c33; it has .*\n\z/, errors[1])
    end

    def test_a_run_without_a_workload_says_which_there_are
      status, _, errors = command

      assert_equal 2, status
      assert_match(/which workload\? .*hello, .*idle/, errors)
    end
  end
end
