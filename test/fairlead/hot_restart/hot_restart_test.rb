# frozen_string_literal: true

require "open3"
require_relative "../../helper"
require_relative "../../http_client"
require_relative "../../restarts"

module Fairlead
  # USR2 and `fairlead restart`: new code takes over, and nobody notices.
  # Covers hot_restart/parent_link.rb, hot_restart/rehearsal.rb, hot_restart/restart_file.rb
  class HotRestartTest < Test
    def test_no_request_fails_while_new_code_takes_over_again_and_again
      with_server(Restarts::APP, "-w", "2") do |server|
        run = Restarts.new(server, rate: 400, seconds: 5, restarts: 4).run { restart(server) }

        assert_empty run.failures
        assert_operator run.clients.map(&:answers).min, :>, 10
      end
    end

    def test_new_code_serves_under_the_old_process_id_and_the_old_one_goes
      with_server(answering("old"), "-w", "2", "--tag", "shop") do |server|
        before = server.worker_pids
        server.write("config.ru", answering("new"))
        restart(server)

        assert_serves "new", server
        eventually("it says so") { status(server).values_at(:generation, :serving) == [1, true] }
        eventually("the end of the old code") { server.supervisor_pids.size == 1 }
        assert_equal "fairlead: init [shop]", server.title(server.pid)
        assert_empty before & server.descendant_pids
        assert_equal ["fairlead: supervisor [shop]", "fairlead: worker 0 [shop]", "fairlead: worker 1 [shop]"],
                     server.descendant_pids.map { |pid| server.title(pid) }.sort
        assert_predicate server.stop, :success?
      end
    end

    # The init process is late to tell the old code that it has to go.
    def test_the_command_says_that_the_new_code_serves_once_the_old_takes_no_more_connections
      with_server(answering("old"), "-w", "2") do |server|
        server.write("config.ru", "File.write(\"begun\", \"\")\nsleep 0.01 until File.exist?(\"go\")\n#{answering("new")}")
        said = Thread.new { command(server) }
        eventually("it is being started") { File.exist?(server.path("begun")) }
        server.signal(:STOP)
        server.write("go", "")
        eventually("the new code serves too") { status(server).values_at(:generation, :serving) == [1, true] }
        assert_nil said.join(0.5)
        server.signal(:CONT)
        text, status = said.value
        assert_match(/\AThe new code serves /, text)
        assert_equal 0, status
        20.times { assert_equal "new", server.get.body }
      ensure
        server.signal(:CONT)
      end
    end

    def test_where_nothing_can_be_written_workers_die_and_new_code_comes_as_elsewhere
      %w[0 1].each do |workers|
        with_server(answering("old"), "-w", workers, spawn_options: { out: "/dev/full", err: "/dev/full" }) do |server|
          if workers == "1"
            server.signal(:KILL, worker = server.worker_pids.first)
            eventually("another worker") { (server.worker_pids - [worker]).any? }
            server.restart(:HUP)
          end
          server.write("config.ru", "run(")
          assert_equal 1, command(server).last
          assert_serves "old", server
          server.write("config.ru", answering("new"))
          assert_equal 0, command(server).last
          assert_serves "new", server
          assert_predicate server.stop, :success?
        end
      end
    end

    # At whatever moment of a restart: while the new code boots, takes over, and the old one ends.
    def test_no_signal_is_lost
      app = "File.write(\"loads\", \"x\", mode: \"a\")\n#{answering("text")}"
      with_server(app) do |server|
        10.times do
          server.signal(:USR2)
          server.wait_for_notification("RELOADING=1")
          server.wait_for_notification("READY=1")
        end
        assert_equal 11, File.size(server.path("loads"))
        restart(server)
        first = server.supervisor_pid
        (0..9).each do |number|
          server.signal(:HUP)
          server.wait_for_notification("RELOADING=1")
          server.wait_for_notification("READY=1")
          assert_equal number + 1, server.log.scan("The workers have been restarted.").size
        end
        assert_equal first, server.supervisor_pid
        server.signal(:USR2)
        server.wait_for_notification("READY=1")
        assert_predicate server.stop, :success?
      end
    end

    def test_touching_a_file_asks_for_it_once
      with_server(answering("first"), "-w", "2", files: { "tmp/.keep" => "" }) do |server|
        assert_puma_makes_no_file(server)
        %w[second third].each do |code|
          server.write("config.ru", answering(code))
          server.write("tmp/restart.txt", "")
          server.wait_for_notification("RELOADING=1")
          server.wait_for_notification("READY=1")
          assert_serves code, server
        end
        eventually("the end of the others") { server.descendant_pids.size == 3 }

        refute_match(/could not be started/, server.log)
        assert_equal 2, server.log.scan("New code is being started.").size
      end
    end

    def test_the_second_time_too
      with_server(answering("first")) do |server|
        %w[second third fourth].each do |code|
          server.write("config.ru", answering(code))
          restart(server)
          assert_serves code, server
        end
        eventually("the end of the others") { server.descendant_pids.size == 2 }
      end
    end

    def test_what_runs_in_the_old_code_is_finished
      with_server(answering_when_told("old")) do |server|
        idle = HTTPClient.new(server.connect)
        idle.get("/")
        server.connect do |socket|
          socket.write("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
          eventually("the request runs") { File.exist?(server.path("began")) }
          server.write("config.ru", answering("new"))
          restart(server)
          assert_serves "new", server
          eventually("the old worker drains") { idle.get("/")["connection"] == "close" }
          server.write("go", "")
          head = socket.gets("\r\n\r\n")

          assert_match(/^connection: close/i, head)
          assert_equal "old", socket.read
        end
      ensure
        idle&.close
      end
    end

    def test_a_connection_that_was_idle_gets_its_answer_from_the_old_code_and_is_closed
      with_server(answering("old"), "-w", "2") do |server|
        clients = Array.new(20) { StrictClient.new(server) }
        clients.each(&:request)
        restart(server)
        2.times { clients.each(&:request) }

        assert_empty clients.flat_map(&:failures)
        assert_equal [3], clients.map(&:answers).uniq
      ensure
        clients&.each(&:disconnect)
      end
    end

    def test_code_that_cannot_be_loaded_leaves_the_old_one_serving_with_one_message
      with_server(answering("old"), "-w", "2") do |server|
        before = server.worker_pids
        server.write("config.ru", "run(")
        restart(server)

        assert_equal "old", server.get.body
        assert_equal before, server.worker_pids & before
        assert_equal 1, server.log.scan("The new code could not be started; the old code continues to serve.\n" \
                                        "The app could not be loaded from config.ru.\nconfig.ru:1: ").size
        refute_match(/\tfrom |\.rb:\d+:in /, server.log)
        server.write("config.ru", answering("new"))
        restart(server)
        assert_serves "new", server
        server.write("config.ru", "run nonsense")
        restart(server)
        assert_serves "new", server
        assert_match(/continues to serve\.\nThe app.*\nconfig\.ru:1: NameError/, server.log)
      end
    end

    def test_new_code_whose_workers_or_process_die_leaves_the_old_one_serving
      with_server(answering("old"), files: { "config/fairlead.rb" => "bind \"http://127.0.0.1:0\"\nworkers 1" }) do |server|
        server.write("config/fairlead.rb", "bind \"http://127.0.0.1:0\"\nworkers 1\nafter_fork { raise \"no cache\" }")
        restart(server)
        assert_serves "old", server
        assert_match(/continues to serve\.\nNo worker could start.*no cache/m, server.log)

        server.write("config/fairlead.rb", "Process.kill(:KILL, Process.pid)")
        restart(server)
        assert_serves "old", server
        assert_match(/continues to serve\.\nThe new process was ended by SIGKILL;/, server.log)
      end
    end

    def test_addresses_may_change_and_the_others_stay
      configured = ->(*uris) { uris.map { |uri| "bind #{uri.inspect}\n" }.join << "workers 1" }
      free = "http://127.0.0.1:0"
      with_server(answering("old"), files: { "config/fairlead.rb" => configured[free, "unix:a.sock"] }) do |server|
        address = server.address
        server.write("config.ru", answering("new"))
        server.write("config/fairlead.rb", configured[free, "unix:b.sock"])
        restart(server)

        assert_equal address, server.address
        assert_serves "new", server
        assert_equal "new", over(server, "b.sock")
        refute_path_exists server.path("a.sock")
        server.write("config.ru", answering("newer"))
        restart(server)
        eventually("the newer code") { over(server, "b.sock") == "newer" }
        server.stop
        refute_path_exists server.path("b.sock")
      end
    end

    def test_term_while_new_code_is_being_started_ends_both
      with_server(answering("old")) do |server|
        server.write("config.ru", "File.write(\"loading\", \"\")\nsleep")
        server.signal(:USR2)
        eventually("loading") { File.exist?(server.path("loading")) }
        others = server.descendant_pids

        assert_predicate server.stop, :success?
        assert_empty others.select { |pid| server.alive?(pid) }
      end
    end

    def test_signals_reach_the_code_that_serves
      with_server(answering("old"), "--pidfile", "server.pid") do |server|
        restart(server)
        await_the_end_of_the_old_code(server)
        supervisor, worker = server.descendant_pids
        server.restart(:HUP)
        eventually("another worker") { server.descendant_pids.size == 2 && !server.descendant_pids.include?(worker) }
        server.signal(:TTIN)
        eventually("two workers") { server.descendant_pids.size == 3 }

        assert_equal supervisor, server.descendant_pids.first
        assert_equal "#{server.pid}\n", File.read(server.path("server.pid"))
        server.signal(:USR2, supervisor) # the wrong process passes it on
        server.wait_for_notification("READY=1")
        server.signal(:TERM)
        server.wait_for_notification("STOPPING=1")
        assert_predicate server.wait_for_end, :success?
        refute_path_exists server.path("server.pid")
      end
    end

    def test_term_ends_the_idle_connections_that_old_code_has_kept
      with_server(answering("old"), "--drain-timeout", "600") do |server|
        idle = HTTPClient.new(server.connect)
        idle.get("/")
        restart(server)
        server.signal(:TERM)

        assert_predicate idle, :eof?
        assert_predicate server.wait_for_end, :success?
      end
    end

    # As systemd tells them without `KillMode=mixed`.
    def test_term_to_all_processes_lets_what_runs_finish
      with_slow_request_after_a_restart do |server, slow|
        tell_all(server)
        server.wait_for_notification("STOPPING=1")

        refute slow.join(0.5), "it runs yet"
        server.write("go", "")
        assert_equal "done", slow.value
        assert_predicate server.wait_for_end, :success?
      end
    end

    # A worker of the new code serves while another one boots.
    def test_term_to_all_processes_lets_what_runs_in_code_that_boots_finish_until_they_are_told_again
      config = "bind \"http://127.0.0.1:0\"\nworkers 2\ndrain_timeout 60\n"
      [true, false].each do |finished|
        with_server(answering("old"), files: { "config/fairlead.rb" => config }) do |server|
          server.write("config.ru", answering_when_told("done"))
          server.write("config/fairlead.rb", "#{config}after_fork { |index| sleep if index == 1 }")
          server.signal(:USR2)
          slow = Thread.new do
            answer = server.exchange("GET /wait HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") until answer && !answer.end_with?("old")
            answer
          end
          eventually("it runs") { File.exist?(server.path("began")) }
          tell_all(server)
          server.wait_for_notification("STOPPING=1")

          refute slow.join(0.5), "it runs yet"
          finished ? server.write("go", "") : tell_all(server)
          assert_match(finished ? /done\z/ : /\AHTTP\/1.1 503 /, slow.value)
          assert_predicate server.wait_for_end(within: 20), :success?
        end
      end
    end

    def test_a_second_term_to_the_first_process_ends_at_once
      with_slow_request_after_a_restart do |server, slow|
        server.signal(:TERM)
        server.wait_for_notification("STOPPING=1")

        assert_operator duration { server.stop }, :<, 20
        assert_predicate server.status, :success?
        slow.kill
      end
    end

    # It has opened the log before, and would be ended by the signal.
    def test_code_that_boots_reopens_its_logs_too
      with_server(answering("old"), "--log", "server.log") do |server|
        server.write("config.ru", "File.write(\"loading\", \"\")\nsleep 0.01 until File.exist?(\"go\")\n#{answering("new")}")
        server.signal(:USR2)
        eventually("loading") { File.exist?(server.path("loading")) }
        File.rename(server.path("server.log"), server.path("server.log.1"))
        server.signal(:USR1)
        eventually("the log of the old code") { File.exist?(server.path("server.log")) }
        server.write("go", "")
        assert_serves "new", server

        eventually("nobody writes to the other file") { server.descendant_pids.push(server.pid).none? { |pid| opened(pid).grep(/log\.1\z/).any? } }
      end
    end

    def test_the_server_ends_with_the_status_of_the_code_that_serves
      with_server(answering("old")) do |server|
        restart(server)
        await_the_end_of_the_old_code(server)
        server.signal(:KILL, server.descendant_pids.first)

        assert_equal 128 + 9, server.wait_for_end.exitstatus
      end
    end

    def test_without_the_first_process_all_end
      with_server(answering("old")) do |server|
        restart(server)
        await_the_end_of_the_old_code(server)
        others = server.descendant_pids
        server.signal(:KILL)

        eventually("the end of all") { others.none? { |pid| server.alive?(pid) } }
      end
    end

    # The environment that the app has changed is not the new one's.
    def test_new_code_starts_with_the_environment_and_in_the_folder_of_the_first
      app = <<~RUBY
        SEEN = ENV.values_at("GIVEN", "ADDED", "LISTEN_FDS", "NOTIFY_SOCKET", "FAIRLEAD_PARENT", "WATCHDOG_USEC")
        ENV["GIVEN"] = ENV["ADDED"] = "changed"
        FOLDER = Dir.pwd
        Dir.chdir("/")
        run ->(env) { [200, {}, [[*SEEN, FOLDER].inspect]] }
      RUBY
      with_server(app, env: { "GIVEN" => "first" }) do |server|
        3.times do
          assert_equal ["first", *([nil] * 5), server.directory].inspect, server.get.body
          restart(server)
        end
      end
    end

    # Bundler 4 names its lock file in the environment of all that it starts.
    def test_a_link_to_the_code_leads_to_the_new_lock_file
      Dir.mktmpdir do |folder|
        %w[one two].each do |name|
          FileUtils.mkdir_p("#{folder}/#{name}")
          FileUtils.cp("#{ROOT}/Gemfile.lock", "#{folder}/#{name}")
          File.write("#{folder}/#{name}/config.ru", 'run ->(env) { [200, {}, [File.realpath(ENV.fetch("BUNDLE_LOCKFILE"))]] }')
        end
        link = "#{folder}/current"
        File.symlink("one", link)
        env = { "PWD" => link, "BUNDLE_LOCKFILE" => "#{folder}/one/Gemfile.lock" }
        with_server(nil, env:, spawn_options: { chdir: link }) do |server|
          assert_equal "#{folder}/one/Gemfile.lock", server.get.body
          File.unlink(link)
          File.symlink("two", link)
          restart(server)
          assert_serves "#{folder}/two/Gemfile.lock", server
        end
      end
    end

    # As Capistrano deploys.
    def test_a_link_to_the_code_leads_to_the_new_code
      Dir.mktmpdir do |folder|
        %w[one two].each { |name| FileUtils.mkdir_p("#{folder}/#{name}") && File.write("#{folder}/#{name}/config.ru", answering(name)) }
        link = "#{folder}/current"
        File.symlink("one", link)
        with_server(nil, env: { "PWD" => link }, spawn_options: { chdir: link }) do |server|
          assert_equal "one", server.get.body
          File.unlink(link)
          File.symlink("two", link)
          restart(server)
          assert_serves "two", server
        end
      end
    end

    def test_who_has_been_told_to_end_starts_no_new_code
      app = "run ->(env) { (File.write(\"begun\", \"\"); sleep 1.5) if env[\"PATH_INFO\"] == \"/slow\"; [200, {}, [\"old\"]] }"
      with_server(app) do |server|
        slow = Thread.new { server.get("/slow").body }
        eventually("it runs") { File.exist?(server.path("begun")) }
        server.signal(:TERM)
        server.wait_for_notification("STOPPING=1")
        server.write("config.ru", answering("new"))
        server.signal(:USR2)
        assert_equal "old", slow.value
        assert_predicate server.wait_for_end, :success?
        refute_includes server.log, "New code is being started"
      end
    end

    def test_the_command_tells_how_it_went
      with_server(answering("old")) do |server|
        server.write("config.ru", answering("new"))
        assert_equal ["The new code serves #{server.address} (process #{server.pid}).\n", 0], command(server)
        assert_serves "new", server # beside the old, which may still accept for a moment
        server.write("config.ru", "run(")
        text, status = command(server)
        assert_equal 1, status
        assert_match(/\Afairlead: The new code could not be started; the old code continues to serve\.\n.*\nconfig\.ru:1: /, text)
        assert_equal "new", server.get.body
      end
    end

    def test_the_command_tells_the_first_process
      heard = Signals.new(:USR2)
      looks = -> { [heard.take.empty? ? answer(1) : answer(2)] }

      assert_equal "The new code serves here (process #{Process.pid}).\n", told_by_the_command(looks)
    ensure
      heard.restore
    end

    # Generation 1 boots already when the command asks for another one: whether 1 serves or fails is no answer.
    def test_the_command_waits_for_its_own_code_and_not_for_what_boots_already
      heard = Signals.new(:USR2)
      booting = [answer(0, begun: 1), answer(1, serving: false)]
      looks = [booting, booting, [answer(0, begun: 1, failed: 1)], [answer(0, begun: 2, failed: 2)]]

      error = assert_raises(BootError) { told_by_the_command(looks.method(:shift)) }
      assert_match(/\AThe new code could not be started/, error.message)
      looks = [booting, [answer(1)], [answer(1, begun: 2), answer(2, serving: false)], [answer(2)]]

      assert_equal "The new code serves here (process #{Process.pid}).\n", told_by_the_command(looks.method(:shift))
      assert_empty looks
    ensure
      heard.restore
    end

    # Generation 2 was about to replace its process when the command asked for another one, which nobody needs then.
    def test_the_command_is_content_with_a_process_that_has_replaced_itself_since
      heard = Signals.new(:USR2)
      looks = [[answer(1, begun: 2).merge(status: { started_at: 1.0 })], [], [answer(2).merge(status: { started_at: 2.0 })]]

      assert_equal "The new code serves here (process #{Process.pid}).\n", told_by_the_command(looks.method(:shift))
    ensure
      heard.restore
    end

    def test_the_command_says_so_if_the_server_cannot_be_told
      Process.wait(ended = spawn("true"))
      error = assert_raises(ConfigurationError) { told_by_the_command(-> { [answer(0).merge(pid: ended)] }) }

      assert_equal "The server cannot be signalled: No such process (process #{ended}).", error.message
    end

    def test_a_supervisor_that_is_told_as_it_ends_passes_it_on
      config = <<~RUBY
        bind "http://127.0.0.1:0"
        workers 1
        Fairlead::Supervisor.prepend(Module.new do
          def finished?
            super.tap { |finished| File.write("told", "") && Process.kill(:USR2, Process.pid) if finished && !File.exist?("told") }
          end
        end)
      RUBY
      with_server(answering("text"), files: { "config/fairlead.rb" => config }) do |server|
        2.times { restart(server) }
        server.wait_for_notification("RELOADING=1")
        server.wait_for_notification("READY=1")

        eventually("the third") { status(server)[:generation] == 3 }
      end
    end

    # As systemd opens them: they are no one's to ask for, and stay.
    def test_sockets_of_a_service_manager_stay_too
      folder = Dir.mktmpdir
      listeners = [TCPServer.new("127.0.0.1", 0), UNIXServer.new("#{folder}/app.sock")]
      with_server(answering("old"), files: { "config/fairlead.rb" => "workers 1" }, env: { "LISTEN_FDS" => "2" },
                                    prefix: ["sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh"],
                                    spawn_options: { 3 => listeners.first, 4 => listeners.last }) do |server|
        2.times do |number|
          server.write("config.ru", answering("new #{number}"))
          restart(server)
          assert_serves "new #{number}", server
          assert_equal ["http://127.0.0.1:#{listeners.first.addr[1]}", "unix:#{folder}/app.sock"], server.addresses
        end
        server.stop

        assert_path_exists "#{folder}/app.sock"
      end
    ensure
      listeners.each(&:close)
      FileUtils.remove_entry(folder)
    end

    # Whoever is in the wrong folder must not restart another app.
    def test_a_server_of_another_folder_has_to_be_named
      with_server(answering("old"), "-w", "0") do |server|
        Dir.mktmpdir do |elsewhere|
          text, status = command(chdir: elsewhere)

          assert_equal [<<~TEXT, 1], [text, status]
            fairlead: No server of this user runs in #{File.realpath(elsewhere)}. These run:
              --pid #{server.pid}  #{server.directory}  #{server.address}
            Name one, like --pid #{server.pid}, or start a server here.
          TEXT
        end
        refute_match(/replaces this process/, server.log)
        assert_equal ["The new code serves #{server.address} (process #{server.pid}).\n", 0], command(chdir: server.directory)
      end
    end

    # No process is there to start new code beside it.
    def test_without_workers_what_runs_is_finished_and_the_command_begins_anew_in_its_place
      app = "File.write(\"loads\", \"x\", mode: \"a\")\n#{answering("%s")}"
      with_server(format(app, "0"), "-w", "0", "-b", "http://127.0.0.1:0", "-b", "unix:app.sock", "--pidfile", "app.pid") do |server|
        addresses = server.addresses
        asks = [-> { server.write("tmp/restart.txt", "") }, -> { server.signal(:USR2) }, -> { assert_equal 0, command(server).last }]
        asks.each.with_index(1) do |ask, number|
          server.write("config.ru", format(app, number.to_s))
          ask.call
          eventually("the new code") { server.get_meanwhile.body == number.to_s } # no connection is refused
          %w[RELOADING=1 READY=1].each { |message| server.wait_for_notification(message) }
        end

        assert_equal addresses, server.addresses
        assert_equal "3", over(server, "app.sock")
        assert_equal "xxxxxxx", File.read(server.path("loads")) # each new code twice: once beside the old
        assert_match(/^\[\d+\] fairlead: tmp.restart\.txt has been touched\. Running requests are finished/, server.log)
        assert_match(/then `.*exe.fairlead .*` replaces this process\.$/, server.log)
        assert_predicate server.stop, :success?
        refute_path_exists server.path("app.sock")
        refute_path_exists server.path("app.pid")
      end
    end

    def test_without_workers_code_that_cannot_be_loaded_leaves_the_old_one_serving_and_the_command_says_so
      with_server(answering("old"), "-w", "0") do |server|
        ["run(", "exit", "Process.kill(:KILL, Process.pid)", "raise \"\xff\"", "fork { sleep 90 }; exit"].each do |broken|
          server.write("config.ru", broken)
          text, status = command(server)

          assert_equal [1, "old"], [status, server.get.body], broken
          assert_match(/\Afairlead: The new code could not be started; the old code continues to serve\.\n\S/, text)
        end
        assert_match(/continues to serve\.\nThe app could not be loaded from config\.ru\.\nconfig\.ru:1: /, server.log)
        refute_match(/was not loaded within/, server.log) # a child of the code that has ended does not hide its end
        server.write("config.ru", answering("new"))
        assert_equal 0, command(server).last
        assert_equal "new", server.get.body
      end
    end

    def test_without_workers_a_command_that_cannot_be_run_leaves_the_old_code_serving
      Dir.mktmpdir do |folder|
        ruby = "#{folder}/ruby"
        File.symlink(RbConfig.ruby, ruby)
        %w[0 1].each do |workers|
          server = of_this_test(ServerProcess.new(answering("old"), "-w", workers))
          server.define_singleton_method(:command) { [ruby, *super().drop(1)] }
          server.start.wait_until_ready
          File.unlink(ruby)
          text, status = command(server)

          assert_equal [1, "old"], [status, server.get.body]
          assert_match(/The command cannot be run: No such file or directory - #{ruby}/, text)
          File.symlink(RbConfig.ruby, ruby)
          server.write("config.ru", answering("new"))
          assert_equal 0, command(server).last
          assert_serves "new", server
        end
      end
    end

    def test_without_workers_code_that_does_not_come_to_its_end_leaves_the_old_one_serving
      with_server(answering("old"), "-w", "0", "--boot-timeout", "5") do |server|
        server.write("config.ru", "child = spawn(\"sleep 20\"); File.write(\"pids\", [Process.pid, child].inspect); sleep")
        text, = command(server)

        assert_match(/was not loaded within 5\.0 s \(boot_timeout\)/, text)
        assert_equal "old", server.get.body
        assert_ended server
        server.signal(:USR2)
        eventually("it is tried") { File.exist?(server.path("pids")) }
        assert_predicate server.stop, :success?
        assert_ended server
      end
    end

    def test_without_workers_who_is_told_to_end_just_before_the_command_begins_anew_ends
      config = <<~RUBY
        Fairlead::Server.prepend(Module.new do
          def run
            super
          ensure
            Process.kill(:TERM, Process.pid)
          end
        end)
      RUBY
      with_server(answering("text"), "-w", "0", "-b", "unix:app.sock", files: { "config/fairlead.rb" => config }) do |server|
        server.signal(:USR2)

        assert_predicate server.wait_for_end, :success?
        refute_path_exists server.path("app.sock")
      end
    end

    private

    # One that is started in the same folder: its plugin makes the file where there is none, which is no touch.
    def assert_puma_makes_no_file(server)
      path = server.path("tmp/restart.txt")
      before = File.mtime(path)
      code = 'Puma::Plugins.find("tmp_restart").new.start(nil)'
      assert system(RbConfig.ruby, "-rbundler/setup", "-rpuma", "-rpuma/plugin", "-e", code, chdir: server.directory)
      assert_equal before, File.mtime(path)
    end

    def assert_ended(server)
      pids = File.read(server.path("pids")).scan(/\d+/).map(&:to_i)
      eventually("the end of all that was tried") { pids.none? { |pid| server.alive?(pid) } }
      File.delete(server.path("pids"))
    end

    # @param servers [#call] what it finds.
    def told_by_the_command(servers)
      output = StringIO.new
      CLI::Restart.new([], output:, servers:).run
      output.string
    end

    # This process stands for the first process of the server.
    def answer(generation, serving: true, begun: generation, failed: nil)
      { pid: Process.pid, supervisor: Process.pid, folder: Dir.pwd, addresses: ["here"],
        restarts: { generation:, begun:, serving:, failed: } }
    end

    # New code serves, and a request runs until the file `go` is.
    def with_slow_request_after_a_restart
      with_server(answering_when_told("done"), "--drain-timeout", "60") do |server|
        restart(server)
        await_the_end_of_the_old_code(server)
        slow = Thread.new { server.get("/wait").body }
        eventually("it runs") { File.exist?(server.path("began")) }
        yield server, slow
      end
    end

    # As a service manager does. Some may have ended by then.
    def tell_all(server)
      [*server.descendant_pids, server.pid].each do |pid|
        server.signal(:TERM, pid)
      rescue Errno::ESRCH
        nil
      end
    end

    def await_the_end_of_the_old_code(server)
      eventually("the end of the old code") { server.supervisor_pids.size == 1 }
    end

    # For a few milliseconds both may serve.
    def assert_serves(text, server)
      eventually("the answer #{text}") { server.get.body == text }
    end

    def answering(text) = "run ->(env) { [200, { \"content-type\" => \"text/plain\" }, [#{text.inspect}]] }"

    # What asks for /wait writes the file `began`, and gets its answer once there is a file `go`.
    def answering_when_told(text)
      <<~RUBY
        run lambda { |env|
          if env["PATH_INFO"] == "/wait"
            File.write("began", "")
            sleep 0.01 until File.exist?("go")
          end
          [200, {}, [#{text.inspect}]]
        }
      RUBY
    end

    def restart(server) = server.restart(:USR2)

    def status(server) = StatusReport.new(ServerSelection.new(ControlSocket.servers, pid: server.pid).server).to_h

    def command(server = nil, **options)
      text, status = Open3.capture2e(RbConfig.ruby, "-I", File.join(ROOT, "lib"), File.join(ROOT, "exe/fairlead"), "restart",
                                     *(["--pid", server.pid.to_s] if server), **options)
      [text, status.exitstatus]
    end

    def over(server, name)
      server.connect(unix: server.path(name)) do |socket|
        socket.write("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        socket.read[/\r\n\r\n(.*)\z/m, 1]
      end
    end
  end
end
