# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # WATCHDOG=1, as a service manager with `WatchdogSec=` wants it. It listens to the main process alone (`NotifyAccess=main`).
  class WatchdogTest < Test
    APP = <<~RUBY
      $LOAD_PATH.unshift #{File.join(ROOT, "examples/cwork/lib").inspect}
      require "cwork"
      version = File.read("version")
      run lambda { |env|
        File.write("begun", "") if env["PATH_INFO"] == "/held"
        Cwork.with_gvl(30) if env["PATH_INFO"] == "/held"
        text = env["PATH_INFO"] == "/variables" ? `env`.lines.grep(/WATCHDOG|NOTIFY/).join : version
        [200, {}, [text]]
      }
    RUBY
    SECONDS = 3.0
    LONG = 12.0
    private_constant :APP, :SECONDS, :LONG

    [0, 1, 2].each do |workers|
      define_method("test_it_is_told_at_least_twice_in_each_interval_with_#{workers}_workers") do
        watched("-w", workers.to_s) do |server|
          assert_told server
          assert_equal "", server.get("/variables").body
          assert_equal [server.pid], server.senders
        end
      end

      # Without workers, the process that tells becomes a new one, whose start takes seconds on a busy machine.
      define_method("test_it_is_told_across_restarts_with_#{workers}_workers") do
        watched("-w", workers.to_s, seconds: LONG) do |server|
          server.write("version", "new")
          server.signal(:USR2)
          server.wait_for_notification("RELOADING=1")
          server.wait_for_notification("READY=1")
          eventually("new code") { server.get.body == "new" }
          assert_told server, LONG
          assert_operator server.longest_silence, :<, LONG
          assert_equal [server.pid], server.senders
        end
      end
    end

    def test_a_supervisor_or_a_first_process_that_is_stuck_tells_nothing
      watched("-w", "1") do |server|
        assert_told server
        [server.pid, server.supervisor_pid].each do |pid|
          server.signal(:STOP, pid)
          assert_silent server
          server.signal(:CONT, pid)
          assert_told server
        end
      end
    end

    def test_a_supervisor_of_new_code_that_is_stuck_tells_nothing
      watched("-w", "1") do |server|
        server.restart(:USR2)
        eventually("the end of the old code") { server.supervisor_pids.size == 1 }
        supervisor = server.supervisor_pid
        assert_told server
        server.signal(:STOP, supervisor)
        assert_silent server
        server.signal(:CONT, supervisor)
        assert_told server
      end
    end

    def test_nothing_is_told_while_all_workers_are_stuck_but_while_one_is
      watched("-w", "2") do |server|
        one, other = server.worker_pids
        server.signal(:STOP, one)
        sleep SECONDS
        assert_told server
        server.signal(:STOP, other)
        assert_silent server
        server.signal(:CONT, other)
        assert_told server
        server.signal(:CONT, one)
      end
    end

    [0, 1].each do |workers|
      define_method("test_nothing_is_told_while_a_call_holds_rubys_lock_with_#{workers}_workers") do
        watched("-w", workers.to_s) do |server|
          server.connect do |socket|
            socket.write("GET /held HTTP/1.1\r\nHost: a\r\n\r\n")
            eventually("it runs") { File.exist?(server.path("begun")) }
            assert_silent server
          end
        end
      end
    end

    def test_workers_that_are_restarted_are_no_reason_for_silence
      watched("-w", "1") do |server|
        3.times { server.restart(:HUP) }
        server.signal(:KILL, server.worker_pids.first)
        server.gather(SECONDS)
        assert_told server
        assert_operator server.longest_silence, :<, SECONDS
      end
    end

    def test_what_is_meant_for_another_process_is_not_answered
      watched("-w", "1", env: { "WATCHDOG_PID" => "1" }) do |server|
        server.gather(2)

        assert_equal 0, server.told
      end
    end

    # Notes from which process each message comes, and when it was sent, however late it is read.
    class Watched < ServerProcess
      attr_reader :senders

      def start
        @senders = []
        @times = []
        @told = 0
        super
      end

      # @param seconds [Numeric]
      # @param enough [Integer, nil] ends sooner once it was told so often.
      def gather(seconds, enough: nil)
        till = now + seconds
        receive_notification while (enough.nil? || @told < enough) && @notifications.wait_readable([till - now, 0].max)
      end

      # @return [Integer] how often it was told since it was last asked.
      def told = @told.tap { @told = 0 }

      def longest_silence = @times.each_cons(2).map { |one, other| other - one }.max

      private

      def receive_notification
        %i[PASSCRED TIMESTAMP].each { |option| @notifications.setsockopt(:SOCKET, option, 1) }
        message, _, _, *controls = @notifications.recvmsg
        pid = controls.find { |control| control.cmsg_is?(:SOCKET, :CREDENTIALS) }&.data&.unpack1("i")
        @senders |= [pid].compact.reject(&:zero?)
        if message.include?("WATCHDOG=1")
          @times << controls.find { |control| control.cmsg_is?(:SOCKET, :TIMESTAMP) }.timestamp.to_f
          @told += 1
        end
        status = message[/^STATUS=serving (.*)$/, 1]
        @addresses = status.split if status
        @seen << message
      end
    end

    private

    def watched(*flags, env: {}, seconds: SECONDS)
      environment = { "WATCHDOG_USEC" => (seconds * 1_000_000).to_i.to_s, **env }
      server = of_this_test(Watched.new(APP, *flags, env: environment, lint: false, files: { "version" => "old" }))
      server.start.wait_until_ready
      yield server
    ensure
      server&.finish
    end

    # At least twice in the next interval.
    def assert_told(server, seconds = SECONDS)
      server.gather(0)
      server.told
      server.gather(seconds, enough: 2)

      assert_operator server.told, :>=, 2, server.log
    end

    # What was well a moment ago may still be told for the length of one interval.
    def assert_silent(server)
      server.gather(SECONDS)
      server.told
      server.gather(SECONDS)

      assert_equal 0, server.told
    end
  end
end
