# frozen_string_literal: true

require "shellwords"
require_relative "../../helper"
require_relative "../../http_client"
require_relative "../../tmux"

module Fairlead
  class CLI
    # `fairlead top` in a terminal.
    # Covers cli/top/terminal.rb
    class TopTest < Test
      include SpeaksHTTP

      APP = "run ->(env) { sleep(0.01) until File.exist?(\"over\") || env[\"PATH_INFO\"] == \"/\"; [200, {}, []] }"
      COMMAND = [RbConfig.ruby, "-I", File.join(ROOT, "lib"), File.join(ROOT, "exe/fairlead"), "top"].shelljoin
      private_constant :APP, :COMMAND

      def teardown
        @terminal&.finish
        super
      end

      def server = shared_server(APP, "-w", "2", "-e", "production")

      def test_it_is_live_and_keys_change_what_it_shows
        top
        await(/^0 +\d+ +serving .*\n1 +\d+ +serving/)
        request = client(to: server).write("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
        await(/ 1 running /)
        @terminal.press("f")
        await(%r{ GET /wait +(sleep|cpu|turn|gvl)\b})
        @terminal.press("w", "p")
        await(/ paused$/)
        await(/^worker /)
        File.write(server.path("over"), "")
        request.response
        @terminal.press("?")
        await(/^s +sort by the next column/)
        @terminal.press("?", "s")
        await(/sort: run\b/)

        assert_match(/ 1 running /, @terminal.screen, "it is paused")
        @terminal.press("p", "t")
        await(/Nothing has stalled/)
        await(/ 0 running /)
        @terminal.press("w")
        await(/^worker /)
      ensure
        FileUtils.rm_f(server.path("over"))
      end

      def test_it_follows_the_size_of_the_terminal
        top(columns: 120, rows: 30)
        await(/^worker +process .*requests/)
        @terminal.resize(40, 12)
        await(%r{^worker +state +run +wait +req/s +CPU$})

        assert_equal 12, @terminal.lines.size
        assert_match(/\A\? help .*q quit/, @terminal.lines.last)
        assert_equal 1, @terminal.screen.scan(/^worker/).size, "no line is broken"
        @terminal.resize(120, 30)
        await(/^worker +process .*requests/)
      end

      def test_the_terminal_is_as_before_however_it_ends
        { "q" => 0, "C-c" => 130, "TERM" => 143 }.each do |way, status|
          top
          await(/^worker /)
          assert_equal %w[1 0], [@terminal.state("alternate_on"), @terminal.state("cursor_flag")]
          way == "TERM" ? Process.kill(way, child(@terminal.state("pane_pid").to_i)) : @terminal.press(way)

          assert_restored(status)
          @terminal.finish
        end
        @terminal = nil
      end

      def test_the_terminal_is_as_before_after_an_exception
        broken = "Fairlead::CLI::TopScreen.class_eval { def lines = raise(\"broken\") }; exit Fairlead::CLI.new(ARGV).run"
        top([RbConfig.ruby, "-I", File.join(ROOT, "lib"), "-r", "fairlead/cli", "-e", broken, "top"].shelljoin)

        assert_restored(1)
        assert_match(/broken \(RuntimeError\)/, @terminal.screen)
      end

      def test_ctrl_z_and_back
        top("#{COMMAND}; echo stopped; read key; fg >/dev/null")
        await(/^worker /)
        @terminal.press("C-z")
        await(/^stopped$/)
        assert_equal %w[0 1], [@terminal.state("alternate_on"), @terminal.state("cursor_flag")]
        @terminal.press("Enter")
        await(/^worker /)
        @terminal.press("q")

        assert_restored(0)
      end

      def test_a_server_that_has_gone_is_said_and_found_again
        server = of_this_test(ServerProcess.new(APP)).start.wait_until_ready
        top(server:)
        await(/^0 +\d+ +serving /)
        server.stop
        await(/^The server has not answered for /)
        server.start.wait_until_ready
        eventually("it shows the new one") { !@terminal.screen.include?("has not answered") }

        await(/^0 +#{server.worker_pids.first} +serving /)
      end

      def test_one_screen_where_there_is_no_terminal
        output, status = Open3.capture2e("#{COMMAND} | cat", chdir: server.directory)

        assert_predicate status, :success?
        assert_match(/\AFairlead .*\n.* req\/s .*\n\nworker .*\n0 .*\n1 .*\n\z/, output)
        refute_includes output, "\e"
      end

      def test_a_locale_without_unicode
        top(env: { "LC_ALL" => "C" })

        assert_match(/production +[_.#=-]{2,}$/, await(/production +[_.#=-]{2,}$/))
      end

      def test_wrong_flags_are_told
        assert_raises(ConfigurationError) { Top.new(%w[--every 0 --pid 1], servers: -> { [{ pid: 1, folder: "/" }] }).run }
      end

      private

      def top(command = COMMAND, server: self.server, **)
        script = "set -m; trap : INT QUIT; echo before; stty -g >modes; #{command}; echo \"status $?\"; stty -g | cmp - modes && echo same modes; exec sleep 600"
        @terminal = Tmux.new(script, directory: server.directory, **)
      end

      # @return [String] the screen.
      def await(pattern, within = 60)
        eventually("#{pattern.inspect} on the screen:\n#{@terminal.screen}", within:) { @terminal.screen.then { |text| text if text.match?(pattern) } }
      rescue Minitest::Assertion
        flunk "#{pattern.inspect} did not appear:\n#{@terminal.screen}"
      end

      def assert_restored(status)
        await(/^before\n(.*\n)*status #{status}\nsame modes/)

        assert_equal %w[0 1], [@terminal.state("alternate_on"), @terminal.state("cursor_flag")]
      end

      # The process that the script runs.
      def child(pid) = eventually("the command") { File.read("/proc/#{pid}/task/#{pid}/children").split.first&.to_i }
    end
  end
end
