# frozen_string_literal: true

require "io/console"
require "json"
require "open3"
require "pty"
require_relative "../../helper"
require_relative "../../stalls"

module Fairlead
  class CLI
    # `fairlead status` of servers that run.
    # Covers cli/status_report.rb, control/worker_stats.rb, control/server_selection.rb
    class StatusTest < Test
      include SpeaksHTTP
      include Fairlead::Stalls

      WORKER_KEYS = %w[
        index kind pid age state stalled connections in_flight streams queued full oldest_wait requests errors refused turned_away
        timed_out stalls standbys handed received restarts heartbeat_age database lane pools pools_age requests_per_second
        turned_away_per_second cpu memory suspended
      ].freeze
      KEYS = %w[
        pid folder tag addresses version ruby yjit environment started_at generation serving failure limits seconds workers total
        routes matters
      ].freeze
      private_constant :WORKER_KEYS, :KEYS

      def server = shared_server(APP, "-w", "2", "-e", "production")

      def test_each_worker_has_a_row
        output, status = fairlead # in the folder of the server

        assert_predicate status, :success?
        assert_match(/\AFairlead #{VERSION} in #{Regexp.escape(server.directory)}, process #{server.pid}, http:/, output)
        server.worker_pids.each_with_index do |pid, index|
          assert_match(/^#{index} +#{pid} +[\d.]+ (s|min) +serving( +[\d,]+){3} +- +[\d,]+ +[\d,]+ +\d+ % +\d+ MiB/, output)
        end
        assert_match(/^all  /, output)
        refute_includes output, "\e"
      end

      def test_all_of_it_is_there_for_machines
        5.times { server.get("/") }
        now = asked

        assert_equal KEYS, now.keys
        assert_equal [WORKER_KEYS], now["workers"].map(&:keys).uniq
        assert_equal [server.pid, RUBY_VERSION, "production", 0, true], now.values_at("pid", "ruby", "environment", "generation", "serving")
        assert_operator now["total"]["requests"], :>=, 5
        assert_operator now["workers"].first["memory"], :>, 1_000_000
        assert_in_delta Time.now.to_f, now["started_at"], 600
      end

      def test_what_runs_is_shown
        requests = Array.new(3) { client.write("GET /sleep?5 HTTP/1.1\r\nHost: a\r\n\r\n") }

        eventually("they are shown") { asked["total"]["in_flight"] >= 3 }
        assert_equal 3, requests.size
      end

      # Of the worker that holds the lock nobody is answered anything.
      def test_a_worker_that_is_stuck_holds_up_nothing
        text = pid = nil
        eventually("it is said while it is stuck") do
          stuck = stall(server, "/held", 1.5)
          text = said
          stuck.response
          pid = text[/^Worker \d \(process (\d+)\): for [\d.]+ s, a request sleeps in C with Ruby's lock/, 1]
        end

        assert_match(/^\d +#{pid} .*stuck \d/, text)
        assert_operator eventually("it is counted") { look["total"]["stalls"].nonzero? }, :>=, 1
      end

      def test_a_call_that_blocks_is_shown_though_a_standby_serves
        stalled = eventually("it is shown while it blocks") do
          blocked = stall(server, "/free", 1)
          found = asked["workers"].filter_map { |worker| worker["stalled"] }
          blocked.response
          found unless found.empty?
        end

        assert_equal ["blocked"], stalled.map { |one| one["kind"] }
        assert_includes 0.1..30, stalled.first["seconds"]
        eventually("it is over") { look["workers"].all? { |worker| worker["stalled"].nil? } }
      end

      def test_what_signals_have_done_to_workers_is_said
        with_server(APP, "-w", "2") do |server|
          suspended, killed = server.worker_pids
          server.signal(:STOP, suspended)
          server.signal(:KILL, killed)
          now = eventually("its successor") { look(server).then { |one| one if one["total"]["restarts"] == 1 } }
          matters = now["matters"].join("\n")

          refute_includes now["workers"].map { |worker| worker["pid"] }, killed
          assert_match(/predecessor.* of worker 1 .* ended unexpectedly/, matters)
          assert_match(/^A signal has suspended worker 0 \(process #{suspended}\)/, matters)
        ensure
          server.signal(:CONT, suspended)
        end
      end

      def test_again_and_again_until_ctrl_c
        Open3.popen2e(*command("--every", "0.2", "--json"), chdir: server.directory) do |_, output, process|
          JSON.parse(output.gets) # it comes after a time of its own
          assert_median_below(0.7, "from look to look", runs: 3) do
            JSON.parse(output.gets)["seconds"].tap { |seconds| assert_operator seconds, :>=, 0.15 }
          end
          Process.kill(:INT, process.pid)

          output.each_line { |line| assert_kind_of Hash, JSON.parse(line), "another look, and nothing else" }
          assert_equal 130, process.value.exitstatus
        end
      end

      def test_the_screen_is_cleared_on_a_terminal
        PTY.spawn(*command("--every", "0.2", "--pid", server.pid.to_s)) do |output, input, pid|
          text = +""
          text << output.readpartial(4096) until text.scan("\e[H\e[2J").size >= 2
          input.write("\x03")
          Process.wait(pid)

          assert_match(/Fairlead .*No problems\.\r\n/m, text)
        rescue Errno::EIO # it has ended
          flunk text
        end
      end

      def test_no_line_is_wider_than_the_terminal
        [80, 60].each do |width|
          PTY.open do |output, terminal|
            terminal.winsize = [24, width]
            pid = Process.spawn(*command, chdir: server.directory, out: terminal, err: terminal)
            terminal.close
            text = +""
            text << output.readpartial(4096) until text.include?("No problems.")
            Process.wait(pid)
            lines = text.split("\r\n")

            assert_operator lines.grep_v(/^Fairlead|^http/).map(&:size).max, :<=, width, text
            assert_equal 3, lines.grep(/^(worker|0|all) .*memory|^(0|all) .*MiB/).size, text
          end
        end
      end

      def test_nobody_reads_on
        reader, writer = IO.pipe
        pid = Process.spawn(*command("--every", "0.1"), chdir: server.directory, out: writer, err: writer)
        writer.close
        reader.gets
        reader.close

        assert_predicate Process.wait2(pid).last, :success?
      end

      def test_a_server_that_is_not_there_is_one_clear_line
        output, status = fairlead("--pid", "1")

        assert_equal 1, status.exitstatus
        # Servers of tests that run meanwhile may be stopped or stuck.
        assert_match(/\Afairlead: No server of this user (runs|answers) as process 1[.\n]/, output)
        refute_match(/\.rb:\d+:in /, output)
      end

      def test_wrong_flags_are_told
        [%w[--wrong], %w[--every x], %w[--every 0 --pid 1], %w[somewhere]].each do |arguments|
          assert_raises(ConfigurationError) { Status.new(arguments, output: StringIO.new, servers: -> { [answer(1)] }).run }
        end
      end

      def test_which_of_several_is_asked_for
        error = assert_raises(ConfigurationError) { Status.new([], output: StringIO.new, servers: -> { [answer(1), answer(2)] }).run }

        assert_match(/\ASeveral servers run\. Name one with --pid:\n  --pid 1 /, error.message)
      end

      private

      def answer(pid) = { pid:, folder: "/app", addresses: ["http://127.0.0.1:9292"], restarts: { generation: 0 }, limit: 0.05, stalls: [] }

      def asked(server = self.server) = JSON.parse(said("--json", server:))

      # One look, as the command takes two.
      def look(server = self.server)
        JSON.parse(JSON.generate(StatusReport.new(ServerSelection.new(ControlSocket.servers, pid: server.pid).server).to_h))
      end

      # In this process: a look takes as long as it does.
      def said(*arguments, server: self.server)
        output = StringIO.new
        Status.new(["--pid", server.pid.to_s, *arguments], output:).run
        output.string
      end

      def fairlead(*arguments) = Open3.capture2e(*command(*arguments), chdir: server.directory)

      def command(*arguments) = [RbConfig.ruby, "-I", File.join(ROOT, "lib"), File.join(ROOT, "exe/fairlead"), "status", *arguments]
    end
  end
end
