# frozen_string_literal: true

require_relative "../../helper"
require "json"

module Fairlead
  class ForegroundTest < Test
    PID = "run ->(env) { [200, {}, [\"\#{Process.pid} \#{Fairlead.serving?}\"]] }"
    SLOW = <<~RUBY
      run ->(env) do
        File.write("began", "")
        sleep Float(env["QUERY_STRING"])
        [200, {}, ["done"]]
      end
    RUBY

    def test_without_workers_the_process_itself_serves
      with_server(PID, "-w", "0") do |server|
        assert_equal "#{server.pid} true", server.get.body
        assert_empty server.worker_pids
        assert_match(/^  workers    none: this process serves/, server.log)
        assert_equal 5, server.log.lines.size
      end
    end

    def test_term_int_and_hup_let_what_runs_finish
      %i[TERM INT HUP].each do |signal|
        with_server(SLOW, "-w", "0") do |server|
          server.connect do |socket|
            begin_request(server, socket, 0.5)
            server.signal(signal)
            server.wait_for_notification("STOPPING=1")

            assert_match(/done\z/, socket.read)
          end
          assert_predicate server.wait_for_end, :success?
        end
      end
    end

    def test_told_to_end_before_it_serves_it_never_shows_that_it_serves
      with_server(<<~RUBY, "--workers", "0", ready: false) do |server|
        require "fairlead/serving/server"
        Fairlead::Server.prepend(Module.new do
          def run
            drain
            super do
              yield
              File.write("state", Fairlead.page.get(0, :state).to_s)
            end
          end
        end)
        run ->(_) { [200, {}, []] }
      RUBY
        assert_predicate server.wait_for_end(within: 240), :success?
        assert_equal WorkerState::DRAINING.to_s, File.read(server.path("state"))
      end
    end

    def test_a_second_term_ends_at_once
      with_server(SLOW, "-w", "0") do |server|
        server.connect do |socket|
          begin_request(server, socket, 60)
          server.signal(:TERM)
          server.wait_for_notification("STOPPING=1")

          assert_operator duration { server.stop }, :<, 10
        end
      end
    end

    # A terminal that closes may say so twice.
    def test_a_second_hup_changes_nothing
      with_server(SLOW, "-w", "0") do |server|
        server.connect do |socket|
          begin_request(server, socket, 0.5)
          2.times { server.signal(:HUP) }

          assert_match(/done\z/, socket.read)
        end
        assert_predicate server.wait_for_end, :success?
      end
    end

    def test_a_restart_that_is_asked_for_while_the_app_is_loaded_is_not_lost
      app = <<~RUBY
        VERSION = File.read("version")
        File.write("loading", "")
        sleep 0.01 until File.exist?("go")
        run ->(_) { [200, {}, [VERSION]] }
      RUBY
      asks = [->(server) { server.signal(:USR2) }, ->(server) { server.write("tmp/restart.txt", "") }]
      asks.each do |ask|
        with_server(app, "-w", "0", files: { "version" => "old" }, ready: false) do |server|
          eventually("the old version is loaded") { File.exist?(server.path("loading")) }
          server.write("version", "new")
          ask.call(server)
          server.write("go", "")
          server.wait_until_ready

          eventually("the new version") { server.get_meanwhile.body == "new" }
        end
      end
    end

    # Clients that connect, and ask a moment later. The server promises them a second; those that the machine delays for half of it do not
    # count.
    def test_clients_that_have_just_connected_are_answered_while_new_code_takes_over
      with_server("VERSION = File.read(\"version\")\nrun ->(_) { [200, {}, [VERSION]] }", "-w", "0", files: { "version" => "0" }) do |server|
        answers = Queue.new
        clients = Array.new(6) { Thread.new { ask_late(server, answers) until answers.closed? } }
        server.write("version", "1")
        server.signal(:USR2)
        seen = []
        eventually("the new code") { seen.push(answers.pop).last.first.end_with?("1") }
        answers.close
        clients.each(&:join)

        assert_empty seen.filter_map { |answer, in_time| answer if in_time }.grep_v(/\AHTTP\/1.1 200 .*[01]\z/m)
      end
    end

    # In a session without a terminal, and in a process group of its own: only there they would suspend it.
    def test_signals_that_mean_more_or_less_workers_do_not_suspend_it
      apart = ["setsid", RbConfig.ruby, "-e", "Process.wait(spawn(*ARGV, pgroup: true))", "--"]
      with_server(PID, "-w", "0", prefix: apart) do |server|
        pid = server.worker_pids.first
        %i[TTIN TTOU].each { |signal| server.signal(signal, pid) }

        assert_equal "#{pid} true", server.get.body
      end
    end

    def test_what_does_not_finish_in_time_is_ended
      with_server(SLOW, "-w", "0", "--drain-timeout", "0.3") do |server|
        server.connect do |socket|
          begin_request(server, socket, 60)

          assert_includes 0.3..10, duration { server.stop }
        end
      end
    end

    def test_the_unix_socket_and_the_process_id_file_go_with_it
      with_server(PID, "-w", "0", "-b", "unix:app.sock", "--pidfile", "app.pid") do |server|
        files = [server.path("app.sock"), server.path("app.pid")]
        files.each { |file| assert_path_exists file }
        server.stop

        files.each { |file| refute_path_exists file }
      end
    end

    def test_its_figures_are_known
      app = "require \"json\"\nrun ->(env) { [200, {}, [JSON.generate(Fairlead.stats)]] }"
      with_server(app, "-w", "0") do |server|
        worker, *others = JSON.parse(server.get.body).fetch("workers")

        assert_empty others
        assert_equal [0, server.pid, "serving"], worker.values_at("index", "pid", "state")
      end
    end

    def test_a_broken_app_is_one_message
      server = with_server("\nrun nonsense", "-w", "0", lint: false, ready: false)

      assert_equal 1, server.wait_for_end.exitstatus
      assert_match(/^config\.ru:2: NameError: /, server.log)
    end

    private

    def ask_late(server, answers)
      began = monotonic
      sent = nil
      answer = server.connect do |socket|
        sleep 0.05
        socket.write("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        sent = monotonic
        socket.read
      rescue SystemCallError => error
        error.inspect
      end
      answers.push([answer, (sent || monotonic) < began + 0.5])
    rescue ClosedQueueError
      nil # the test has seen enough
    end

    def begin_request(server, socket, seconds)
      socket.write("GET /?#{seconds} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
      eventually("the request runs") { File.exist?(server.path("began")) }
    end
  end
end
