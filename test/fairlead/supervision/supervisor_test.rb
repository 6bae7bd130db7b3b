# frozen_string_literal: true

require_relative "../../helper"
require "json"
require "pty"

module Fairlead
  # Covers supervision/preparation.rb, supervision/supervision.rb, supervision/worker.rb, supervision/worker_processes.rb
  class SupervisorTest < Test
    # Answers with the process that serves.
    PID = "run ->(env) { [200, { \"content-type\" => \"text/plain\" }, [Process.pid.to_s]] }"

    # Answers after a while; the file `began` says that the request runs.
    SLOW = <<~RUBY
      run ->(env) do
        File.write("began", "")
        sleep Float(env["QUERY_STRING"].empty? ? 0 : env["QUERY_STRING"])
        [200, { "content-type" => "text/plain" }, ["done"]]
      end
    RUBY

    def test_it_forks_the_workers_it_is_told_to
      with_server(PID, "-w", "3") do |server|
        assert_equal 3, server.worker_pids.size
        assert_includes server.worker_pids, server.get.body.to_i
      end
    end

    def test_processes_say_what_they_are
      with_server(PID, "-w", "2", "--tag", "shop") do |server|
        assert_equal ["fairlead: init [shop]", "fairlead: supervisor [shop]"], [server.pid, server.supervisor_pid].map { |pid| server.title(pid) }
        assert_equal ["fairlead: worker 0 [shop]", "fairlead: worker 1 [shop]"],
                     server.worker_pids.map { |pid| server.title(pid) }.sort
      end
    end

    def test_term_and_int_end_it_with_status_0
      %i[TERM INT].each do |signal|
        with_server(PID, "-w", "2") do |server|
          workers = server.worker_pids
          status = server.stop(signal)

          assert_predicate status, :success?, server.log
          assert_empty workers.select { |pid| server.alive?(pid) }
        end
      end
    end

    def test_what_cannot_be_handled_is_logged_and_all_that_follows_is_handled
      broken = "Fairlead::Log.define_singleton_method(:reopen) { raise \"broken in \#{Process.pid}\" }"
      [2, 0].each do |count|
        with_server("#{broken}\n#{PID}", "-w", count.to_s) do |server|
          workers = server.worker_pids
          server.signal(:USR1)
          workers.each { |pid| Process.kill(:USR1, pid) }
          [*workers, count.zero? ? server.pid : server.supervisor_pid].each do |pid|
            eventually("process #{pid} says so") { server.log.match?(/^\[#{pid}\] fairlead: .*USR1.* was not handled: .*broken in #{pid} /) }
          end
          if count.positive?
            server.signal(:HUP)
            eventually("the workers are replaced") { (server.worker_pids & workers).empty? && server.worker_pids.size == count }
          end

          assert_predicate server.stop(:TERM), :success?, server.log
          refute_match(/is killed/, server.log)
        end
      end
    end

    def test_term_lets_what_runs_finish
      with_server(SLOW) do |server|
        server.connect do |socket|
          begin_slow_request(server, socket, 0.5)
          server.signal(:TERM)
          server.wait_for_notification("STOPPING=1")

          assert_match(/\AHTTP\/1.1 200 .*done\z/m, socket.read)
        end
        assert_predicate server.wait_for_end, :success?
      end
    end

    def test_while_it_drains_new_connections_are_refused
      with_server(SLOW) do |server|
        server.connect do |socket|
          begin_slow_request(server, socket, 20)
          server.signal(:TERM)
          server.wait_for_notification("STOPPING=1")

          eventually("refused", within: 15) { refused?(server) }
          assert_nil socket.wait_readable(0), "the request still runs"
        end
      end
    end

    def test_a_second_term_ends_at_once
      with_server(SLOW) do |server|
        server.connect do |socket|
          begin_slow_request(server, socket, 20)
          server.signal(:TERM)
          server.wait_for_notification("STOPPING=1")
          took = duration { server.stop(:TERM) }

          assert_operator took, :<, 10
          assert_predicate server.status, :success?
        end
      end
    end

    def test_what_does_not_finish_in_time_is_ended
      with_server(SLOW, "--drain-timeout", "0.3") do |server|
        server.connect do |socket|
          begin_slow_request(server, socket, 20)
          took = duration { server.stop }

          assert_includes 0.3..10, took
          assert_predicate server.status, :success?
        end
      end
    end

    # Who hears nothing does not know whether to ask again.
    def test_what_has_not_had_its_turn_when_the_time_is_over_is_told_so
      [%w[1 0.3], %w[0 0.3], %w[1 30]].each do |workers, drain|
        with_server(SLOW, "-w", workers, "--in-flight", "1", "--drain-timeout", drain, "--access-log", "common") do |server|
          running, *waiting = Array.new(3) { server.connect }
          begin_slow_request(server, running, 20)
          waiting.each { |socket| socket.write("GET /waits HTTP/1.1\r\nHost: a\r\n\r\n") }
          waiting << server.connect.tap { |socket| socket.write("GET /begins HTTP/1.1\r\nHo") }
          server.signal(:TERM)
          server.wait_for_notification("STOPPING=1")
          server.signal(:TERM) if drain == "30"

          assert_match(/\AHTTP\/1.1 503 /, running.read)
          waiting.each do |socket|
            answer = socket.read
            assert_match(/\AHTTP\/1.1 503 /, answer)
            assert_includes answer, "\r\nretry-after: 1\r\n"
            assert_includes answer, "\r\nconnection: close\r\n"
          end
          assert_predicate server.wait_for_end, :success?
          assert_equal 2, server.log.scan(/"GET \/waits HTTP\/1.1" 503 /).size
        ensure
          [running, *waiting].compact.each(&:close)
        end
      end
    end

    def test_a_worker_that_hears_nothing_is_killed
      app = "run ->(env) { File.write(\"began\", \"\"); Process.kill(:STOP, Process.pid); [200, {}, []] }"
      with_server(app, "--drain-timeout", "0.2") do |server|
        server.connect do |socket|
          begin_slow_request(server, socket, 0)
          worker = server.worker_pids.first

          assert_predicate server.stop, :success?
          refute server.alive?(worker)
          assert_match(/Worker 0 \(process #{worker}\) does not end: it is killed/, server.log)
        end
      end
    end

    def test_a_worker_that_is_killed_is_replaced
      with_server(PID, "-w", "2") do |server|
        killed, other = server.worker_pids
        server.signal(:KILL, killed)
        successor = eventually("a new worker") do
          new = server.worker_pids - [killed]
          (new - [other]).first if new.size == 2
        end

        eventually("it is told") { server.log.include?("Worker 0 (process #{killed}) ended unexpectedly. It was ended by SIGKILL.") }
        eventually("its title") { server.title(successor).start_with?("fairlead: worker 0 ") }
      end
    end

    def test_a_worker_without_a_supervisor_finishes_what_runs_and_ends
      with_server(SLOW, "-w", "2") do |server|
        workers = server.worker_pids
        server.connect do |socket|
          begin_slow_request(server, socket, 0.5)
          server.signal(:KILL)
          server.wait_for_end

          assert_match(/\AHTTP\/1.1 200 .*done\z/m, socket.read)
        end
        eventually("the end of the workers") { workers.none? { |pid| server.alive?(pid) } }
      end
    end

    def test_a_worker_without_a_supervisor_ends_also_if_a_request_does_not
      with_server(SLOW, "--drain-timeout", "0.3") do |server|
        workers = server.worker_pids
        server.connect do |socket|
          begin_slow_request(server, socket, 60)
          server.signal(:KILL)

          eventually("the end of the workers") { workers.none? { |pid| server.alive?(pid) } }
        end
      end
    end

    def test_hup_replaces_all_workers
      with_server(PID, "-w", "2") do |server|
        before = server.worker_pids
        server.restart
        eventually("the end of the old ones") { (server.worker_pids & before).empty? }

        assert_equal 2, server.worker_pids.size
        assert_equal ["fairlead: worker 0", "fairlead: worker 1"],
                     server.worker_pids.map { |pid| server.title(pid)[/\A[^\[]+/].strip }.sort
        assert_includes server.worker_pids, server.get.body.to_i
      end
    end

    def test_hup_lets_what_runs_finish
      with_server(SLOW) do |server|
        server.connect do |socket|
          begin_slow_request(server, socket, 0.5)
          server.signal(:HUP)
          server.wait_for_notification("RELOADING=1")

          assert_match(/\AHTTP\/1.1 200 .*done\z/m, socket.read)
        end
      end
    end

    def test_hup_many_times_leaks_nothing
      with_server(PID, "-w", "2") do |server|
        restart = lambda do
          server.restart
          eventually("two workers") { server.worker_pids.size == 2 }
        end
        restart.call
        before = descriptors(server.supervisor_pid)
        5.times { restart.call }

        # It closes what it had of a worker as it hears of its end.
        eventually("no more are open than before") { descriptors(server.supervisor_pid) <= before }
      end
    end

    def test_hup_without_preload_brings_new_code_in
      with_server("run ->(env) { [200, {}, [\"old\"]] }", "--no-preload") do |server|
        assert_equal "old", server.get.body
        server.write("config.ru", "run ->(env) { [200, {}, [\"new\"]] }")
        server.restart

        eventually("new code") { server.get.body == "new" }
      end
    end

    def test_hup_with_broken_code_is_given_up_and_the_old_workers_go_on
      with_server("run ->(env) { [200, {}, [\"old\"]] }", "--no-preload", "-w", "2") do |server|
        workers = server.worker_pids
        server.write("config.ru", "\nrun nonsense")
        server.restart

        eventually("those that failed have gone") { server.worker_pids == workers }
        assert_equal "old", server.get.body
        assert_match(/^config\.ru:2: NameError: .*nonsense/, server.log)
        assert_equal 1, server.log.scan("could not start").size, "it is told once"
        assert_match(/The restart is given up; the workers that serve stay\./, server.log)
      end
    end

    def test_ttin_and_ttou_add_and_remove_a_worker
      with_server(PID) do |server|
        server.signal(:TTIN)
        eventually("two") { server.worker_pids.size == 2 }
        server.signal(:TTIN)
        eventually("three") { server.worker_pids.size == 3 }
        2.times { server.signal(:TTOU) }
        eventually("fewer") { server.worker_pids.size < 3 }
        server.signal(:TTOU)
        eventually("one") { server.worker_pids.size == 1 }
        server.signal(:TTOU)
        eventually("a refusal") { server.log.include?("The last worker stays.") }

        assert_equal 1, server.worker_pids.size
        assert_equal "fairlead: worker 0", server.title(server.worker_pids.first)[/\A[^\[]+/].strip
        assert_equal "200", server.get.code
      end
    end

    def test_usr1_reopens_the_logs_of_all
      app = <<~RUBY
        LOG = File.open("app.log", "a").tap { |file| file.sync = true }
        run ->(env) { LOG.puts(env["PATH_INFO"]); $stderr.puts("stderr \#{env["PATH_INFO"]}"); [200, {}, []] }
      RUBY
      with_server(app, "-w", "2", "--log", "server.log", "--access-log", "common") do |server|
        server.get("/before")
        eventually("its line") { File.read(server.path("server.log")).include?('"GET /before ') }
        files = %w[app.log server.log]
        files.each { |file| File.rename(server.path(file), server.path("#{file}.1")) }
        server.signal(:USR1)
        eventually("reopened") { files.all? { |file| File.exist?(server.path(file)) } }
        # Each worker reopens them for itself.
        eventually("all") { server.worker_pids.all? { |pid| opened(pid).grep(/\.log\.1/).empty? } }
        server.get("/after")

        assert_equal "/before\n", File.read(server.path("app.log.1"))
        assert_equal "/after\n", File.read(server.path("app.log"))
        eventually("the access log") do
          File.read(server.path("server.log")).match?(%r{"GET /after HTTP/1.1" 200})
        end
        assert_match(%r{^stderr /after$}, File.read(server.path("server.log")))
        refute_match(%r{/before}, File.read(server.path("server.log")))
      end
    end

    %w[usr1 hup].each do |name|
      define_method("test_#{name}_sent_to_a_worker_does_not_end_it") do
        with_server(PID) do |server|
          worker = server.worker_pids.first
          server.signal(name.upcase.to_sym, worker)

          assert_equal worker, server.get.body.to_i
        end
      end
    end

    def test_a_worker_that_is_told_to_end_finishes_what_runs_and_is_replaced
      with_server(SLOW) do |server|
        worker = server.worker_pids.first
        server.connect do |socket|
          begin_slow_request(server, socket, 0.5)
          server.signal(:TERM, worker)

          assert_match(/done\z/, socket.read)
        end
        eventually("a successor") { server.worker_pids.size == 1 && server.worker_pids != [worker] }
      end
    end

    def test_a_boot_that_always_fails_ends_with_a_message
      server = with_server("\nrun nonsense", "--no-preload", "-w", "2", lint: false, ready: false)
      status = server.wait_for_end

      assert_equal 1, status.exitstatus
      assert_match(/^fairlead: No worker could start, in 4 tries\. The app could not be loaded/, server.log)
      assert_match(/^config\.ru:2: NameError: .*nonsense/, server.log)
      assert_equal 1, server.log.scan("could not start").size
    end

    def test_what_the_user_has_to_change_is_not_tried_again
      server = with_server(PID, ready: false, files: { "config/fairlead.rb" => <<~RUBY })
        bind "http://127.0.0.1:0"
        workers 2
        after_fork do |index|
          File.write("tries", ".", mode: "a")
          raise Fairlead::ConfigurationError, "config/cache.yml: no cache is named."
        end
      RUBY

      assert_equal 1, server.wait_for_end.exitstatus
      assert_match(/^fairlead: config.cache\.yml: no cache is named\.$/, server.log)
      assert_operator File.size(server.path("tries")), :<=, 2
    end

    def test_a_hook_that_fails_is_named
      server = with_server(PID, ready: false, files: { "config/fairlead.rb" => <<~RUBY })
        bind "http://127.0.0.1:0"
        workers 1
        after_fork { |index| raise "no cache" }
      RUBY

      assert_equal 1, server.wait_for_end.exitstatus
      assert_match(%r{^fairlead: No worker could start.* config/fairlead\.rb:3: RuntimeError: no cache$},
                   server.log)
    end

    def test_a_worker_that_ends_while_it_boots_is_told
      server = with_server(PID, ready: false, files: { "config/fairlead.rb" => <<~RUBY })
        bind "http://127.0.0.1:0"
        workers 1
        after_fork { |index| Process.kill(:KILL, Process.pid) }
      RUBY

      assert_equal 1, server.wait_for_end.exitstatus
      assert_match(/^fairlead: No worker could start, in 4 tries\. It was ended by SIGKILL\.$/, server.log)
    end

    def test_a_worker_that_cannot_be_forked_is_tried_again
      server = with_server(PID, files: { "config/fairlead.rb" => <<~RUBY })
        bind "http://127.0.0.1:0"
        workers 1
        before_fork do
          tries = 0
          scarce = Module.new { define_method(:fork) { |&block| (tries += 1) == 1 ? raise(Errno::EAGAIN) : super(&block) } }
          Process.singleton_class.prepend(scarce)
        end
      RUBY

      assert_equal "200", server.get.code
      assert_match(/Worker 0 could not start\. It could not be forked: Resource temporarily unavailable/, server.log)
    end

    def test_a_worker_that_takes_too_long_to_boot_is_killed_and_forked_again
      server = with_server(PID, files: { "config/fairlead.rb" => <<~RUBY })
        bind "http://127.0.0.1:0"
        workers 1
        boot_timeout 1.5
        after_fork { |index| File.exist?("second") ? nil : (File.write("second", ""); sleep) }
      RUBY

      assert_equal "200", server.get.code
      assert_match(/Worker 0 could not start\. It did not serve within 1\.5 s \(boot_timeout\)\./, server.log)
    end

    def test_hooks_run_where_and_when_they_should
      with_server(PID, files: { "config/fairlead.rb" => <<~RUBY }) do |server|
        bind "http://127.0.0.1:0"
        workers 2
        note = ->(*what) { File.write("notes", "\#{what.join(" ")}\\n", mode: "a") }
        before_fork { note.call(:before_fork, Process.pid) }
        after_fork { |index| note.call(:after_fork, index) }
        before_worker_exit { |index| note.call(:before_worker_exit, index) }
        on_restart { note.call(:on_restart, Process.pid) }
      RUBY
        supervisor = server.supervisor_pid
        notes = -> { File.readlines(server.path("notes"), chomp: true) }

        assert_equal ["before_fork #{supervisor}", "after_fork 0", "after_fork 1"],
                     [notes.call.first, *notes.call.drop(1).sort]
        server.restart
        eventually("the exits") { notes.call.size == 8 }

        assert_equal ["after_fork 0", "after_fork 1", "before_worker_exit 0", "before_worker_exit 1",
                      "on_restart #{supervisor}"], notes.call.drop(3).sort
      end
    end

    def test_the_app_is_loaded_once_with_preload_and_in_each_worker_without
      app = "File.write(\"loads\", \"\#{Process.pid}\\n\", mode: \"a\")\n#{PID}"
      with_server(app, "-w", "2") do |server|
        assert_equal ["#{server.supervisor_pid}\n"], File.readlines(server.path("loads"))
      end
      with_server(app, "-w", "2", "--no-preload") do |server|
        assert_equal server.worker_pids.sort, File.readlines(server.path("loads")).map(&:to_i).sort
      end
    end

    # So no collection in a worker has to go through it, nor writes to its pages.
    def test_what_has_been_loaded_before_the_fork_is_old_for_the_collector
      skip "This Ruby has no Process.warmup" unless Process.respond_to?(:warmup)
      app = "require \"objspace\"\nLOADED = Object.new\nrun ->(_) { [200, {}, [ObjectSpace.dump(LOADED)]] }"
      with_server(app) { |server| assert_includes server.get.body, '"old":true' }
      with_server(app, "--no-preload") { |server| refute_includes server.get.body, '"old":true' }
    end

    def test_a_worker_may_open_as_many_descriptors_as_the_system_allows
      with_server(PID, spawn_options: { rlimit_nofile: [256, 4096] }) do |server|
        limits = File.read("/proc/#{server.worker_pids.first}/limits")[/^Max open files.*/].split

        assert_equal %w[4096 4096], limits[3, 2]
      end
    end

    # Were the supervisor's end of a control socket open in a sibling too, a worker would not notice its end.
    def test_a_worker_that_hangs_does_not_keep_its_siblings_from_noticing_the_end_of_the_supervisor
      with_server(PID, "-w", "2") do |server|
        first, second = server.worker_pids
        server.signal(:STOP, second)
        server.signal(:KILL)

        eventually("the end of the first") { !server.alive?(first) }
        server.signal(:CONT, second)
        eventually("the end of the second") { !server.alive?(second) }
      end
    end

    def test_it_leaves_other_children_alone
      app = <<~RUBY
        CHILD = Process.spawn("sleep 0.2")
        Thread.new { Process.wait(CHILD); File.write("child", $?.exitstatus.to_s) }
        #{PID}
      RUBY
      with_server(app) do |server|
        eventually("the status") { File.exist?(server.path("child")) && File.read(server.path("child")) == "0" }
      end
    end

    timing def test_it_waits_without_turning
      with_server(PID, "-w", "2") do |server|
        assert_median_below(2, runs: 3, unit: "ticks of CPU in a second") { in_a_second { ticks(server.supervisor_pid) + ticks(server.pid) } }
        assert_median_below(30, runs: 3, unit: "wake-ups in a second") { in_a_second { switches(server.supervisor_pid) + switches(server.pid) } }
      end
    end

    def test_a_unix_socket_and_several_addresses
      free = "http://127.0.0.1:0"
      with_server(PID, "-b", free, "-b", "unix:app.sock", "-b", free) do |server|
        assert_equal 3, server.addresses.size
        path = server.path("app.sock")
        assert_equal "unix:#{path}", server.addresses[1]
        server.connect(unix: path) do |socket|
          socket.write("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")

          assert_match(/\AHTTP\/1.1 200 /, socket.read)
        end
        server.addresses.values_at(0, 2).each do |uri|
          assert_equal "200", Net::HTTP.get_response(URI(uri)).code
        end
        server.stop

        refute_path_exists path
      end
    end

    def test_sockets_of_a_service_manager_replace_the_default_address
      listener = TCPServer.new("127.0.0.1", 0)
      app = "TOLD = ENV.key?(\"LISTEN_FDS\")\nrun ->(env) { [200, {}, [TOLD.to_s]] }"
      files = { "config/fairlead.rb" => "workers 1" }
      with_server(app, files:, env: { "LISTEN_FDS" => "1" }, spawn_options: { 3 => listener }) do |server|
        assert_equal ["http://127.0.0.1:#{listener.addr[1]}"], server.addresses
        assert_equal "false", server.get.body, "no child takes them for its own"
      end
    ensure
      listener.close
    end

    def test_all_interfaces_are_one_address_to_a_service_manager_and_to_the_configuration
      listener = TCPServer.new("0.0.0.0", 0)
      port = listener.addr[1]
      files = { "config/fairlead.rb" => "workers 1\nbind \"http://[::]:#{port}\", \"http://127.0.0.1:0\"" }
      with_server(PID, files:, env: { "LISTEN_FDS" => "1" }, spawn_options: { 3 => listener }) do |server|
        assert_equal "http://0.0.0.0:#{port}", server.addresses.first
        assert_equal 2, server.addresses.size, "the other one is bound as well"
      end
    ensure
      listener.close
    end

    def test_sockets_that_are_meant_for_another_process_are_left_alone
      listener = TCPServer.new("127.0.0.1", 0)
      with_server(PID, env: { "LISTEN_FDS" => "1", "LISTEN_PID" => "1" }, spawn_options: { 3 => listener }) do |server|
        refute_equal ["http://127.0.0.1:#{listener.addr[1]}"], server.addresses
      end
    ensure
      listener.close
    end

    def test_a_descriptor_that_does_not_listen_is_refused
      reader, writer = IO.pipe
      server = with_server(PID, env: { "LISTEN_FDS" => "1" }, spawn_options: { 3 => reader }, ready: false)

      assert_equal 1, server.wait_for_end.exitstatus
      assert_match(/^fairlead: The descriptor 3 \(LISTEN_FDS\) is no socket/, server.log)
    ensure
      [reader, writer].each(&:close)
    end

    def test_the_service_manager_is_told_everything
      with_server(PID, ready: false) do |server|
        ready = server.wait_for_notification("READY=1")

        assert_match(/^MAINPID=#{server.pid}$/, ready)
        server.signal(:HUP)
        assert_match(/^MONOTONIC_USEC=\d+$/, server.wait_for_notification("RELOADING=1"))
        server.wait_for_notification("READY=1")
        server.signal(:TERM)
        server.wait_for_notification("STOPPING=1")
      end
    end

    def test_when_its_terminal_closes_it_ends
      terminal, slave = PTY.open
      with_server(PID, prefix: %w[setsid --ctty], spawn_options: { in: slave }) do |server|
        slave.close
        server.restart
        terminal.close
        server.wait_for_notification("STOPPING=1")

        assert_predicate server.wait_for_end, :success?
      end
    end

    # The kernel tells the init process of it, and the supervisor too; the shell may tell them once more.
    def test_a_terminal_that_hangs_up_twice_lets_what_runs_finish
      app = "run ->(env) { File.write(\"began\", \"\"); sleep 0.01 until File.exist?(\"go\"); [200, {}, [\"done\"]] }"
      terminal, slave = PTY.open
      with_server(app, "--log", "server.log", prefix: %w[setsid --ctty], spawn_options: { in: slave }) do |server|
        slave.close
        request = Thread.new { server.get.body }
        eventually("the request runs") { File.exist?(server.path("began")) }
        terminal.close
        server.wait_for_notification("STOPPING=1")
        server.signal(:HUP)
        File.rename(server.path("server.log"), server.path("server.log.1"))
        server.signal(:USR1)
        eventually("what came after it has arrived") { server.worker_pids.all? { |pid| opened(pid).grep(/\.log\.1/).empty? } }
        server.write("go", "")

        assert_equal "done", request.value
        assert_predicate server.wait_for_end, :success?
      end
    end

    def test_without_a_terminal_hup_always_restarts
      with_server(PID, prefix: %w[setsid]) do |server|
        server.signal(:HUP)
        server.wait_for_notification("READY=1")

        assert_equal "200", server.get.code
      end
    end

    def test_term_while_the_workers_load_the_app_ends_it
      server = with_server("File.write(\"loading\", \"\")\nsleep", "--no-preload", ready: false)
      eventually("loading") { File.exist?(server.path("loading")) }

      assert_predicate server.stop, :success?
      assert_empty server.log.scan(/could not start/)
    end

    # SQLite's connections must not be carried over a fork; those of the others are no better for it.
    def test_database_connections_that_the_app_opened_while_it_was_loaded_are_closed_before_the_fork
      app = <<~RUBY
        require "active_record"
        ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: "data.sqlite3")
        query = -> { ActiveRecord::Base.with_connection { |connection| connection.select_value("SELECT 7") } }
        opened = lambda do |pid|
          descriptors = Dir.children("/proc/\#{pid}/fd").map { |name| "/proc/\#{pid}/fd/\#{name}" }
          descriptors.count { |name| File.symlink?(name) && File.readlink(name).end_with?("data.sqlite3") }
        end
        query.call
        loaded = opened.call(Process.pid)
        run lambda { |env|
          [200, {}, [[loaded, opened.call(Process.ppid), opened.call(Process.pid), query.call].join(" ")]]
        }
      RUBY
      with_server(app) { |server| assert_equal "1 0 0 7", server.get.body }
    end

    def test_the_process_id_file
      with_server(PID, "--pidfile", "server.pid") do |server|
        assert_equal "#{server.pid}\n", File.read(server.path("server.pid"))
        server.signal(:KILL, server.worker_pids.first)
        eventually("a new worker") { server.log.include?("SIGKILL") && server.worker_pids.size == 1 }
        assert_path_exists server.path("server.pid")
        server.stop
        refute_path_exists server.path("server.pid")
      end
    end

    def test_a_second_server_with_the_same_process_id_file_is_refused
      with_server(PID, "--pidfile", "server.pid") do |server|
        second = with_server(PID, "--pidfile", server.path("server.pid"), ready: false)

        assert_equal 1, second.wait_for_end.exitstatus
        assert_match(/says that the server runs already, as process #{server.pid}\./, second.log)
        assert_path_exists server.path("server.pid")
      end
    end

    def test_the_figures_of_all_workers_are_known_in_each
      app = <<~RUBY
        require "json"
        run ->(env) do
          sleep 0.01 until env["PATH_INFO"] == "/" || File.exist?("go")
          [200, {}, [JSON.generate(Fairlead.stats)]]
        end
      RUBY
      with_server(app, "-w", "2") do |server|
        stats = -> { JSON.parse(server.get.body).fetch("workers") }
        workers = stats.call

        assert_equal server.worker_pids, workers.map { |worker| worker.fetch("pid") }
        assert_equal %w[serving serving], workers.map { |worker| worker.fetch("state") }
        waiting = Array.new(3) { Thread.new { server.get("/wait") } }
        eventually("the three that wait") { stats.call.sum { |worker| worker.fetch("in_flight") } == 3 }
        server.write("go", "")
        waiting.each(&:join)
        server.signal(:KILL, server.worker_pids.first)
        eventually("its successor") { stats.call.map { |worker| worker["restarts"] } == [1, 0] }
      end
    end

    private

    def begin_slow_request(server, socket, seconds)
      socket.write("GET /?#{seconds} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
      eventually("the request runs") { File.exist?(server.path("began")) }
    end

    def refused?(server)
      server.connect(&:close)
      false
    rescue Errno::ECONNREFUSED
      true
    end

    def descriptors(pid) = Dir.children("/proc/#{pid}/fd").size

    def in_a_second
      before = yield
      sleep 1
      yield - before
    end

    def ticks(pid) = File.read("/proc/#{pid}/stat").split[13, 2].sum(&:to_i)

    def switches(pid) = File.read("/proc/#{pid}/status")[/^voluntary_ctxt_switches:\s+(\d+)/, 1].to_i
  end
end
