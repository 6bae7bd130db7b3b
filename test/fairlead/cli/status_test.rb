# frozen_string_literal: true

require "io/console"
require "json"
require "open3"
require "pty"
require_relative "../../helper"
require_relative "../../scraping"
require_relative "../../stalls"

module Fairlead
  class CLI
    # `fairlead status` of servers that run.
    # Covers control/status_report.rb, control/worker_stats.rb, control/server_selection.rb
    class StatusTest < Test
      include SpeaksHTTP
      include Scraping
      include Fairlead::Stalls

      WORKER_KEYS = %w[
        index kind pid age state stalled connections in_flight streams queued full oldest_wait requests errors refused turned_away
        timed_out stalls standbys handed received restarts heartbeat_age database lane pools pools_age requests_per_second
        turned_away_per_second cpu memory suspended descriptors
      ].freeze
      KEYS = %w[
        pid folder tag addresses version ruby yjit environment started_at generation serving failure problems certificates limits memory_limit
        seconds workers total routes matters
      ].freeze
      private_constant :WORKER_KEYS, :KEYS

      def server = shared_server(APP, "-w", "2", "-e", "production")

      def test_each_worker_has_a_row
        output, status = fairlead # in the folder of the server

        assert_predicate status, :success?
        assert_match(/\AFairlead #{VERSION} in #{Regexp.escape(server.directory)}, process #{server.pid}, http:/, output)
        regular_workers(server).each_with_index do |pid, index|
          state = /(serving|(blocked|stuck|computing) [\d.]+ \w+)/ # a busy machine may keep one waiting
          assert_match(/^#{index} +#{pid} +[\d.]+ (s|min) +#{state}( +[\d,]+){3} +(-|[\d.]+ \w+) +[\d,]+ +[\d,]+ +\d+ % +\d+ MiB/, output)
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
        requests = Array.new(3) { client.write("GET /sleep?20 HTTP/1.1\r\nHost: a\r\n\r\n") }

        eventually("they are shown") { asked["total"]["in_flight"] >= 3 }
        assert_equal 3, requests.size
      end

      # Of the worker that holds the lock nobody is answered anything.
      def test_a_worker_that_is_stuck_holds_up_nothing
        stuck = keep_stuck(server)
        text = pid = nil
        eventually("it is said while it is stuck") do
          text = said
          pid = text[/^Worker \d \(process (\d+)\): for [\d.]+ (?:s|min), a request sleeps in C with Ruby's lock/, 1]
        end
        release(server)

        assert_equal pid, stuck.response.body
        assert_match(/^\d +#{pid} .*stuck \d/, text)
        assert_operator eventually("it is counted") { look["total"]["stalls"].nonzero? }, :>=, 1
      end

      def test_what_is_stuck_is_shown_also_where_nothing_is_reported
        server = with_server(APP, "-w", "1", "--stall-report", "0")
        stuck = keep_stuck(server)
        pid = stuck_worker(server)
        release(server)

        assert_equal pid.to_s, stuck.response.body
        eventually("it is over") { figures_of(server, pid)[:stalled].nil? }
        assert_equal 0, figures_of(server, pid)[:stalls]
      end

      def test_a_call_that_blocks_is_shown_though_a_standby_serves
        gate = server.write("gate", "")
        blocked = stall(server, "/gate", 0)
        stalled = eventually("it is shown while it blocks") do
          asked["workers"].filter_map { |worker| worker["stalled"] }.find { |one| one["kind"] == "blocked" }
        end
        File.delete(gate)

        assert_operator stalled["seconds"], :>, 0
        assert_equal 200, blocked.response.status
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

      HOARD = <<~RUBY
        HELD = []
        run lambda { |env|
          if env["PATH_INFO"] == "/hold"
            HELD << File.open("/dev/null") until Dir.children("/proc/self/fd").size > 120
          else
            HELD.each(&:close).clear
          end
          [200, {}, [Process.pid.to_s]]
        }
      RUBY
      private_constant :HOARD

      def test_a_worker_that_has_nearly_used_up_its_descriptors_is_named_wherever_problems_are
        with_server(HOARD, "-w", "1", "--metrics", "http://127.0.0.1:0", spawn_options: { rlimit_nofile: [140, 140] }) do |server|
          data = -> { JSON.parse(Net::HTTP.get(metrics_of(server) + "/data.json")) }
          pid = server.get("/hold").body
          problem = /^Worker 0 \(process #{pid}\) has 1[123]\d of 140 file descriptors open \(ulimit -n\), \d of them for clients\./

          assert_match problem, said(server:)
          assert_match problem, Open3.capture2e(*command.tap { |words| words[-1] = "top" }, chdir: server.directory).first.tr("\n", " ").sub(/.*(?=Worker 0)/, "")
          eventually("the dashboard's figures are read anew") { data.call["matters"].grep(problem).any? }
          assert_includes 112..139, data.call["workers"].first.dig("descriptors", "open")
          server.get("/free")
          assert_includes said(server:), "No problems."
        end
      end

      timing def test_again_and_again_until_ctrl_c
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

          assert_match(/Fairlead .*^all .*\r\n/m, text)
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
            loop { text << output.readpartial(4096) } rescue Errno::EIO # it has ended
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
        pid = 1 << 23 # beyond the highest (pid_max in proc_sys_kernel(5))
        output, status = fairlead("--pid", pid.to_s)

        assert_equal 1, status.exitstatus
        assert_match(/\Afairlead: No server of this user runs as process #{pid}\. /, output)
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
