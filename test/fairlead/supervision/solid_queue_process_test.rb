# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # The process of Solid Queue beside the workers: when it is started, told to end, and killed. What runs in it is a
  # stand-in here; test/ecosystem has the real one.
  #
  # Covers supervision/side_process.rb
  class JobsTest < Test
    needs :database

    APP = <<~'RUBY'
      module SolidQueue
        class Supervisor
          def self.start(mode:)
            begun = File.exist?("begun") ? File.read("begun").to_i : 0
            trap(:TERM) { exit } unless ENV["STUBBORN"]
            trap(:TERM) { nil } if ENV["STUBBORN"]
            trap(:QUIT) { File.write("quit", ""); exit } if ENV["STUBBORN"] == "until QUIT"
            File.write("begun", "#{begun + 1} #{mode} #{Process.pid}")
            $0 = "jobs"
            sleep
          end
        end
      end
      run ->(env) { [200, {}, ["served"]] }
    RUBY

    # In a thread of the process that loads the app. What it has done is in the file `done`.
    TRANSACTION = <<~'RUBY'
      require "active_record"
      ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL"))
      class Row < ActiveRecord::Base; self.table_name = "fairlead_jobs_test"; end
      Row.connection_pool.with_connection do |connection|
        connection.execute("DROP TABLE IF EXISTS fairlead_jobs_test")
        connection.execute("CREATE TABLE fairlead_jobs_test (id serial, v text)")
      end
      def transact
        sleep 0.01 until File.exist?("begin")
        Row.transaction do
          Row.create!(v: "debit")
          File.write("within", "")
          sleep 0.01 until File.exist?("go")
          Row.create!(v: "credit")
        end
        Row.pluck(:v).join(" ")
      rescue Exception => error
        error.message
      end
      Thread.new { File.write("done", transact) }
    RUBY

    def test_it_begins_with_the_server_and_ends_with_it
      [["--workers", "2"], ["--workers", "1", "--no-preload"], ["--workers", "0"]].each do |flags|
        with_server(APP, *flags, "--solid-queue", "async") do |server|
          pid = jobs(server)

          assert_match(/\A1 async /, File.read(server.path("begun")))
          assert_equal "served", server.get.body
          assert_predicate server.stop, :success?
          refute server.alive?(pid)
        end
      end
    end

    def test_it_is_started_again_when_it_ends
      with_server(APP, "--solid-queue", "fork") do |server|
        first = jobs(server)
        Process.kill(:KILL, first)
        eventually("it runs again") { jobs(server) != first }

        assert_match(/\A2 fork /, File.read(server.path("begun")))
        assert_match(/Solid Queue \(process #{first}\) was ended by SIGKILL. It is started again in 1 s/, server.log)
        assert_equal "served", server.get.body
      end
    end

    # The process that starts it again has threads of the app's own that are in the database.
    def test_nobody_elses_transaction_notices_that_it_is_started_again_or_that_a_worker_is_forked
      with_server(TRANSACTION + APP, "--solid-queue", "fork", env: { "DATABASE_URL" => ENV["TEST_DATABASE_URL"] }) do |server|
        first = jobs(server)
        server.write("begin", "")
        eventually("it is within the transaction") { File.exist?(server.path("within")) }
        server.signal(:HUP)
        Process.kill(:KILL, first)
        eventually("it runs again") { jobs(server) != first }
        server.write("go", "")

        eventually("its end") { File.size?(server.path("done")) }
        assert_equal "debit credit", File.read(server.path("done"))
      end
    end

    # A fork would carry the connections and locks of its requests over.
    def test_a_process_that_serves_itself_starts_it_once
      with_server(APP, "-w", "0", "--solid-queue", "fork") do |server|
        pid = jobs(server)
        Process.kill(:KILL, pid)
        eventually("it is told") { server.log.include?("Solid Queue (process #{pid}) was ended by SIGKILL. While this process serves") }

        assert_equal "served", server.get.body
        assert_empty server.descendant_pids
        assert_predicate server.stop, :success?
      end
      with_server(APP, "-w", "0", "--solid-queue", "fork") do |server|
        pid = jobs(server)
        server.signal(:KILL)

        eventually("it has ended") { !server.alive?(pid) }
      end
    end

    def test_a_restart_of_the_workers_is_one_of_it_too
      with_server(APP, "--solid-queue", "fork") do |server|
        first = jobs(server)
        server.signal(:HUP)
        eventually("another one runs") { jobs(server) != first }

        refute server.alive?(first)
        refute_match(/ended (with|by)/, server.log)
      end
    end

    # The supervisor is told of the restart before it looks for children that have ended.
    def test_it_may_have_ended_when_a_restart_is_asked_for
      with_server(APP, "--solid-queue", "fork") do |server|
        first = jobs(server)
        server.signal(:STOP, server.supervisor_pid)
        Process.kill(:KILL, first)
        eventually("it has ended") { !server.alive?(first) }
        server.signal(:HUP, server.supervisor_pid)
        server.signal(:CONT, server.supervisor_pid)
        eventually("another one runs") { jobs(server) != first }

        eventually("the restart is over") { server.log.include?("The workers have been restarted.") }
        refute_includes server.log, "failed"
      end
    end

    # The workers have been forked by then.
    def test_it_is_tried_again_if_it_cannot_be_forked
      scarce = <<~'RUBY'
        FORKS = []
        Process.singleton_class.prepend(Module.new { def fork = (FORKS << 1).size == 2 ? raise(Errno::EAGAIN) : super })
      RUBY
      with_server(scarce + APP, "-w", "1", "--solid-queue", "fork") do |server|
        jobs(server)

        assert_includes server.log, "Solid Queue could not be started: Resource temporarily unavailable. It is tried again in 1 s."
        assert_equal "served", server.get.body
      end
    end

    TAKES_STATUS = <<~'RUBY'
      Thread.new do
        sleep 0.01 until File.exist?("take")
        pid = File.read("begun").split.last.to_i
        Thread.current.priority = 3 # longer turns of Ruby's lock: a process may take some time to end
        Process.kill(:KILL, pid)
        nil until Process.wait(pid, Process::WNOHANG)
        File.write("taken", "")
      end
    RUBY

    def test_it_is_started_again_though_the_app_has_waited_for_its_end
      with_server(TAKES_STATUS + APP, "--solid-queue", "fork") do |server|
        first, supervisor = jobs(server), server.supervisor_pid
        server.write("take", "")
        eventually("another one runs") { jobs(server) != first }

        assert_path_exists server.path("taken")
        assert_equal supervisor, server.supervisor_pid
        assert_match(/Solid Queue \(process #{first}\) ended, and something else in this process took its status. It is started/, server.log)
        assert_predicate server.stop, :success?
      end
    end

    def test_new_code_that_takes_over_brings_its_own
      with_server(APP, "--solid-queue", "fork") do |server|
        first = jobs(server)
        server.write("config.ru", APP.sub('$0 = "jobs"', '$0 = "new jobs"'))
        server.signal(:USR2)
        second = eventually("another one runs") { begun(server).then { |pid| pid if pid.positive? && pid != first } }

        eventually("it is the new one") { server.title(second) == "new jobs" }
        eventually("the old one has ended") { !server.alive?(first) }
        assert_predicate server.stop, :success?
        refute server.alive?(second)
      end
    end

    def test_new_code_that_cannot_serve_brings_none
      with_server(APP, "--solid-queue", "fork") do |server|
        first = jobs(server)
        server.write("config.ru", "#{APP}\nraise \"on purpose\"")
        server.signal(:USR2)
        eventually("it is told") { server.log.include?("could not be started") }

        assert_equal first, begun(server)
        assert server.alive?(first)
      end
    end

    def test_it_opens_its_log_again
      [[], ["-w", "0"]].each do |flags|
        with_server(APP, "--solid-queue", "async", "--log", "server.log", *flags) do |server|
          pid = jobs(server)
          File.rename(server.path("server.log"), server.path("old.log"))
          server.signal(:USR1)

          eventually("it writes to the new file") { File.readlink("/proc/#{pid}/fd/1") == server.path("server.log") }
        end
      end
    end

    def test_one_that_does_not_end_is_killed_in_time
      with_server(APP, "--solid-queue", "fork", "--drain-timeout", "0.3", env: { "STUBBORN" => "1" }) do |server|
        pid = jobs(server)

        assert_predicate server.stop, :success?
        assert_includes server.log, "Solid Queue (process #{pid}) does not end: it is killed."
      end
    end

    def test_the_second_time_that_the_server_is_told_to_end_it_ends_at_once
      %w[1 0].each do |workers|
        with_server(APP, "-w", workers, "--solid-queue", "fork", env: { "STUBBORN" => "until QUIT" }) do |server|
          jobs(server)
          server.signal(:TERM)
          server.wait_for_notification("STOPPING=1")
          server.signal(:TERM)

          assert_predicate server.wait_for_end(within: 20), :success?
          assert_path_exists server.path("quit")
        end
      end
    end

    # The requests have ended, and it has not.
    def test_without_workers_a_server_that_is_told_to_end_while_it_waits_for_it_ends_at_once
      config = <<~RUBY
        bind "http://127.0.0.1:0"
        workers 0
        solid_queue "fork"
        Fairlead::SolidQueueProcess.prepend(Module.new { def finish(...) = File.write("waits", "") && super })
      RUBY
      { USR2: "RELOADING=1", TERM: "STOPPING=1" }.each do |first, notification|
        with_server(APP, files: { "config/fairlead.rb" => config }, env: { "STUBBORN" => "until QUIT" }) do |server|
          jobs(server)
          server.signal(first)
          server.wait_for_notification(notification)
          eventually("it waits") { File.exist?(server.path("waits")) }
          server.signal(:TERM)

          assert_predicate server.wait_for_end(within: 20), :success?
          assert_path_exists server.path("quit")
          assert_match(/\A1 /, File.read(server.path("begun")))
        end
      end
    end

    def test_it_ends_when_its_supervisor_is_killed
      with_server(APP, "--solid-queue", "fork") do |server|
        pid = jobs(server)
        server.signal(:KILL)

        eventually("it has ended") { !server.alive?(pid) }
      end
    end

    def test_an_app_without_it_is_told_so
      [["--workers", "1"], ["--workers", "0"]].each do |flags|
        with_server("run ->(env) { [200, {}, []] }", "--solid-queue", "fork", *flags, ready: false) do |server|
          refute_predicate server.wait_for_end, :success?
          assert_includes server.log, "--solid-queue: `solid_queue` is \"fork\", and the app has no Solid Queue. Add the gem"
          refute_match(/\.rb:\d+:in /, server.log)
        end
      end
    end

    private

    # @return [Integer] the process that has begun last.
    def begun(server) = File.read(server.path("begun")).split.last.to_i

    # @return [Integer] its process.
    def jobs(server)
      eventually("the jobs run") { server.descendant_pids.find { |pid| server.title(pid) == "jobs" } }
    end
  end
end
