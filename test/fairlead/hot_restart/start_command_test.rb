# frozen_string_literal: true

require "open3"
require_relative "../../helper"
require_relative "../../installed_gem"

module Fairlead
  # Each way in which people start the server: it is restarted from there in each way that the guides name, and new code
  # serves.
  class StartCommandTest < Test
    APP = "version = File.read(\"version\")\nrun ->(env) { [200, {}, [version]] }"

    # A server that is started by what a user types.
    class Typed < ServerProcess
      attr_writer :words, :spawn_options

      def initialize(*words, gemfile: false, **options)
        @words = words
        super(APP, lint: false, **options)
        write("version", "0")
        write("Gemfile", "gem \"fairlead\"\ngem \"rackup\"\n") if gemfile
      end

      # Runs a command of the same environment.
      #
      # @return [Array(String, Process::Status)]
      def run(*words, chdir: @directory) = Open3.capture2e(CLEAN.merge(@env), *words, chdir:)

      private

      def command = @words
      def flags = @flags
    end

    ADDRESS = %w[-b http://127.0.0.1:0].freeze
    FILE = "bind \"http://127.0.0.1:0\"\nworkers 1\n"
    private_constant :ADDRESS, :FILE

    class << self
      # @return [InstalledGem] for all tests of this class.
      def installed
        @installed ||= InstalledGem.new(beside: ["rackup"]).tap { |gem| Minitest.after_run { gem.remove } }
      end
    end

    def test_bundle_exec
      assert_restarts(bundled("bundle", "exec", "fairlead", *ADDRESS, "-w", "1", "-e", "production"))
    end

    def test_bundle_exec_without_flags
      assert_restarts(bundled("bundle", "exec", "fairlead", files: { "config/fairlead.rb" => FILE }))
    end

    def test_bundle_exec_without_workers
      assert_restarts(bundled("bundle", "exec", "fairlead", *ADDRESS, "-w", "0"), workers: 0)
    end

    # Bundler then replaces its own process.
    def test_bundle_exec_that_does_not_load_the_command
      assert_restarts(bundled("bundle", "exec", "fairlead", *ADDRESS, "-w", "1", env: { "BUNDLE_DISABLE_EXEC_LOAD" => "true" }))
    end

    def test_bundle_exec_of_words_with_spaces_in_a_folder_with_spaces_and_umlauts
      server = bundled("bundle", "exec", "fairlead", *ADDRESS, "-w", "1", "--tag", "täg  and space", "größe 1/the app.ru",
                       env: { "LANG" => "C", "LC_ALL" => nil })
      server.write("größe 1/the app.ru", APP)

      assert_restarts(server)
    end

    def test_bundle_exec_within_bundle_exec
      assert_restarts(bundled("bundle", "exec", "bundle", "exec", "fairlead", *ADDRESS, "-w", "1"))
    end

    def test_bundle_exec_rackup
      rackup = %w[bundle exec rackup -s fairlead -o 127.0.0.1 -p 0]
      assert_restarts(bundled(*rackup, "-O", "workers=1"))
      assert_restarts(bundled(*rackup), workers: 0)
    end

    def test_a_binstub
      server = bundled("bin/fairlead", *ADDRESS, "-w", "1", env: {})
      said, status = server.run("bundle", "binstubs", "fairlead")
      assert_predicate status, :success?, said

      assert_restarts(server)
    end

    def test_an_installed_gem
      assert_restarts(typed("fairlead", *ADDRESS, "-w", "1", env: self.class.installed.environment))
    end

    def test_an_absolute_path_from_another_folder
      server = typed("unused", env: self.class.installed.environment)
      server.words = [self.class.installed.command("fairlead"), *ADDRESS, "-w", "1", server.path("config.ru")]
      server.write("config.ru", APP.sub("\"version\"", "File.join(__dir__, \"version\")"))
      Dir.mktmpdir do |elsewhere|
        server.spawn_options = { chdir: elsewhere }

        assert_restarts(server, chdir: elsewhere)
      end
    end

    def test_ruby_with_flags_and_a_folder
      server = typed("unused", env: self.class.installed.environment)
      server.words = [RbConfig.ruby, "-C", server.directory, "-W0", "-S", "fairlead", *ADDRESS, "-w", "1"]
      Dir.mktmpdir do |elsewhere|
        server.spawn_options = { chdir: elsewhere }

        assert_restarts(server)
      end
    end

    # Its first process is process 1.
    def test_bundle_exec_as_process_1_of_a_container
      namespace = %w[unshare --pid --fork --mount-proc]
      skip "this user may not have a process namespace" unless system(*namespace, "true", err: File::NULL)

      server = bundled(*namespace, "bundle", "exec", "fairlead", *ADDRESS, "-w", "1")
      server.define_singleton_method(:init) { descendant_pids.first }
      server.define_singleton_method(:signal) { |name, pid = init| Process.kill(name, pid) }
      server.define_singleton_method(:run) do |*words, chdir:|
        super("nsenter", "-t", init.to_s, "-p", "-m", "--wd=#{chdir}", *words, chdir:)
      end
      server.define_singleton_method(:supervisor_pids) { children(init) }

      assert_restarts(server)
    end

    # Process numbers of another namespace mean other processes here.
    def test_a_log_shows_no_secrets
      command = StartCommand.parse("fairlead -w 2 --metrics-token abc --metrics http://127.0.0.1:9394 --metrics-token=def")

      assert_equal "fairlead -w 2 --metrics-token … --metrics http://127.0.0.1:9394 --metrics-token=…", command.to_s
    end

    def test_a_server_in_a_container_is_not_restarted_from_outside
      namespace = %w[unshare --pid --fork --mount-proc]
      skip "this user may not have a process namespace" unless system(*namespace, "true", err: File::NULL)

      server = bundled(*namespace, "bundle", "exec", "fairlead", *ADDRESS, "-w", "1")
      server.start.wait_until_ready
      said, status = server.run("fairlead", "restart")

      assert_equal ["fairlead: The server runs in a container, or in another process namespace. Run the command there.\n", false],
                   [said, status.success?]
    end

    private

    def typed(*words, **options) = of_this_test(Typed.new(*words, **options))

    # With a Gemfile in its folder.
    def bundled(*words, env: {}, **options)
      typed(*words, env: self.class.installed.environment.merge(env), gemfile: true, **options)
    end

    # @param chdir [String] where the user types `fairlead restart`.
    def assert_restarts(server, workers: 1, chdir: server.directory)
      server.start.wait_until_ready
      assert_equal "0", server.get.body
      asks(server, chdir).each.with_index(1) do |(name, ask), number|
        server.write("version", number.to_s)
        ask.call
        server.wait_for_notification("RELOADING=1")
        server.wait_for_notification("READY=1")
        eventually("new code, asked for by #{name}:\n#{server.log}", within: 30) { server.get.body == number.to_s }
      end
      assert_hup_restarts_the_workers(server) if workers.positive?
      assert_predicate server.stop, :success?
      refute_match(/could not be started|ASYNC BUG/, server.log)
    ensure
      server.finish
    end

    def asks(server, chdir)
      { "USR2" => -> { server.signal(:USR2) },
        "fairlead restart" => -> { assert_restart_command(server, chdir) },
        "tmp/restart.txt" => -> { touch(chdir) } }
    end

    def touch(folder)
      FileUtils.mkdir_p("#{folder}/tmp")
      File.write("#{folder}/tmp/restart.txt", "")
    end

    def assert_restart_command(server, chdir)
      said, status = server.run("fairlead", "restart", chdir:)

      assert_match(/\AThe new code serves /, said)
      assert_predicate status, :success?
    end

    def assert_hup_restarts_the_workers(server)
      before = server.descendant_pids
      server.restart(:HUP)
      eventually("other workers") { (server.descendant_pids & before).size < before.size }
      assert_equal "3", server.get.body
    end
  end
end
