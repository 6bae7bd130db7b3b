# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # No signal is lost, and no process is left behind, at whatever moment signals come: while the server boots, serves, restarts
  # its workers, starts new code, or drains, and two at once. SEED and ROUNDS repeat a run, or make a longer one.
  class InitProcessTest < Test
    # Each worker loads the app.
    APP = "VERSION = File.read(\"version\")\nFile.write(\"loaded.\#{Process.pid}\", VERSION)\nrun ->(_) { [200, {}, [VERSION]] }"
    RESTARTS = [%i[USR2], %i[HUP], %i[touch], %i[USR2 HUP], %i[HUP USR2], %i[USR2 USR2], %i[HUP HUP], %i[USR2 TTIN],
                %i[USR1 USR2]].freeze
    ENDS = [%i[TERM], %i[INT], %i[USR2 TERM], %i[TERM USR2], %i[HUP TERM], %i[TERM HUP], %i[TTIN INT]].freeze
    private_constant :RESTARTS, :ENDS

    def setup
      super
      @seed = Integer(ENV.fetch("SEED") { Random.new_seed % 1_000_000 })
      @random = Random.new(@seed)
    end

    def test_each_restart_that_is_asked_for_brings_in_what_is_there_then
      rounds.times do |round|
        with_booting_server do |server|
          signals = Array.new(4) do |number|
            server.write("version", "#{round}.#{number}")
            pause(0.6)
            send_signals(server, RESTARTS)
          end
          why = "the newest code after #{signals} (seed #{@seed})"
          eventually(why) { server.supervisor_pids.size == 1 && all_loaded?(server, "#{round}.3") }
          server.wait_until_ready
          assert_equal "#{round}.3", server.get.body
          assert_predicate server.stop, :success?
          assert_nobody_left(server, why)
        end
      end
    end

    def test_hup_reaches_code_that_boots
      app = "#{APP}\nFile.write(\"loading.\#{VERSION}\", \"\")\nsleep 0.01 until File.exist?(\"go.\#{VERSION}\")"
      with_server(app, "--no-preload", files: { "version" => "first" }, ready: false) do |server|
        assert_hup_brings_in("second", server, booting: "first")
        server.write("version", "third")
        server.signal(:USR2)
        assert_hup_brings_in("fourth", server, booting: "third")
      end
    end

    def test_the_end_that_is_asked_for_comes
      rounds.times do
        with_booting_server do |server|
          signals = [send_signals(server, RESTARTS), pause(1.5), send_signals(server, ENDS)]

          refute_nil server.wait_for_end(within: 20), "#{signals} (seed #{@seed})"
          assert_nobody_left(server, "#{signals} (seed #{@seed})")
        end
      end
    end

    def test_without_the_init_process_all_others_end
      rounds.times do
        with_booting_server do |server|
          signals = [send_signals(server, RESTARTS), pause(1.5)]
          server.signal(:KILL)
          server.wait_for_end

          assert_nobody_left(server, "#{signals} (seed #{@seed})")
        end
      end
    end

    private

    def assert_hup_brings_in(version, server, booting:)
      eventually("#{booting} boots") { File.exist?(server.path("loading.#{booting}")) }
      server.write("version", version)
      server.signal(:HUP)
      [booting, version].each { |one| server.write("go.#{one}", "") }

      eventually("#{version} serves") { server.supervisor_pids.size == 1 && all_loaded?(server, version) }
    end

    def rounds = Integer(ENV.fetch("ROUNDS", "4"))

    # The first supervisor says this once the init process has its traps.
    def with_booting_server
      with_server(APP, "--no-preload", files: { "version" => "first" }, ready: false) do |server|
        eventually("the start") { server.log.include?("Fairlead ") }
        yield server
      end
    end

    def pause(most) = @random.rand(most).tap { |seconds| sleep(seconds) }

    def send_signals(server, choices)
      choices.sample(random: @random).each do |signal|
        signal == :touch ? server.write("tmp/restart.txt", "") : server.signal(signal)
      end
    end

    # Whether each worker has loaded this version.
    def all_loaded?(server, version)
      loaded = server.worker_pids.map { |pid| File.exist?(server.path("loaded.#{pid}")) && File.read(server.path("loaded.#{pid}")) }
      loaded.uniq == [version]
    end

    def assert_nobody_left(server, why)
      eventually("the end of all processes after #{why}") { processes_in(server.directory).empty? }
    end

    # @return [Array<Integer>] the processes that run in a folder.
    def processes_in(folder)
      Dir.children("/proc").grep(/\A\d+\z/).select do |pid|
        File.readlink("/proc/#{pid}/cwd") == folder && File.read("/proc/#{pid}/stat")[/\) (.)/, 1] != "Z"
      rescue SystemCallError
        false
      end
    end
  end
end
