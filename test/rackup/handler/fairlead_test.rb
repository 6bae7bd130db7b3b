# frozen_string_literal: true

require "open3"
require_relative "../../helper"
require_relative "../../../bench/harness/free_port"
require "rackup/handler/fairlead"

module Fairlead
  # Covers rackup/rackup.rb, rackup/rackup_handler.rb
  class RackupHandlerTest < Test
    VARIABLES = %w[RACKUP_HANDLER RACK_HANDLER RACK_ENV RAILS_ENV WEB_CONCURRENCY FAIRLEAD_WORKERS FAIRLEAD_BIND
                   PORT].freeze

    # What bin/rails server passes, whatever the user says.
    RAILS = { user_supplied_options: [], Port: 3000, Host: "localhost", DoNotReverseLookup: true, config: "config.ru",
              daemonize: false, caching: nil, early_hints: nil, log_stdout: true }.freeze

    def setup
      super
      @variables = ENV.to_h.slice(*VARIABLES)
      VARIABLES.each { |name| ENV.delete(name) }
      @directory = Dir.mktmpdir("fairlead-")
    end

    def teardown
      VARIABLES.each { |name| ENV[name] = @variables[name] }
      FileUtils.remove_entry(@directory)
      super
    end

    def test_it_is_found_by_its_name
      assert_same ::Rackup::Handler::Fairlead, ::Rackup::Handler.get("fairlead")
    end

    def test_it_is_the_default_though_puma_is_in_the_bundle
      assert_same ::Rackup::Handler::Fairlead, ::Rackup::Handler.default
    end

    def test_a_variable_can_name_another_default
      ENV["RACKUP_HANDLER"] = "puma"

      assert_equal "Rackup::Handler::Puma", ::Rackup::Handler.default.name
    end

    def test_host_and_port_become_the_address
      assert_equal ["http://127.0.0.1:4000"], configuration(Host: "127.0.0.1", Port: "4000").bind
      assert_equal ["http://[::1]:4000"], configuration(Host: "::1", Port: 4000).bind
      assert_equal ["unix:/tmp/app.sock"], configuration(Host: "/tmp/app.sock").bind
      assert_equal ["unix:/tmp/app.sock"], configuration(Host: "unix:/tmp/app.sock").bind
      assert_equal ["http://localhost:3000"], configuration(Host: "localhost", Port: 3000).bind
    end

    def test_the_configuration_file_goes_before_what_rails_assumes
      configure "bind \"http://127.0.0.1:7000\"\nworkers 3"
      configuration = configuration(**RAILS, environment: "production")

      assert_equal ["http://127.0.0.1:7000"], configuration.bind
      assert_equal 3, configuration.workers
    end

    def test_what_the_user_asks_of_rails_goes_before_the_configuration_file
      configure "bind \"http://127.0.0.1:7000\""

      assert_equal ["http://0.0.0.0:3000"],
                   configuration(**RAILS, Host: "0.0.0.0", user_supplied_options: [:Host]).bind
    end

    def test_the_configuration_file_goes_before_what_rackup_assumes
      configure "bind \"http://127.0.0.1:7000\""

      assert_equal ["http://127.0.0.1:7000"], configuration(Host: "localhost", Port: 9292).bind
      assert_equal ["http://0.0.0.0:9000"], configuration(Host: "0.0.0.0", Port: "9000").bind
    end

    def test_what_is_served_is_known_by_its_name
      assert_equal "hello.ru", configuration(config: "hello.ru").rackup
      assert_equal "run Hello", configuration(config: "config.ru", builder: "run Hello").rackup
    end

    def test_in_development_one_process_serves_in_the_foreground
      assert_equal 0, configuration(**RAILS, environment: "development").workers
      assert_equal 0, configuration(environment: "development").workers
    end

    def test_in_production_there_is_a_worker_for_each_core
      assert_equal Etc.nprocessors, configuration(**RAILS, environment: "production").workers
    end

    def test_workers_asked_for_are_given_in_development_too
      assert_equal 2, configuration(environment: "development", workers: "2").workers
      ENV["WEB_CONCURRENCY"] = "3"

      assert_equal 3, configuration(environment: "development").workers
    end

    def test_every_option_can_be_given_by_its_name
      configuration = configuration(access_log: "json", Drain_Timeout: "5")

      assert_equal "json", configuration.access_log
      assert_in_delta 5.0, configuration.drain_timeout
    end

    def test_early_hints_are_sent_if_asked_for
      configure "early_hints true"

      assert configuration(**RAILS).early_hints
      refute configuration(**RAILS, early_hints: false).early_hints
      configure ""

      refute configuration(**RAILS).early_hints
      assert configuration(**RAILS, early_hints: true).early_hints
      assert configuration(early_hints: "true").early_hints
    end

    def test_the_app_is_the_file_that_rackup_or_rails_has_loaded
      configure "rackup \"third.ru\""

      assert_equal "other.ru", configuration(**RAILS, config: "other.ru").rackup
      assert_equal "config.ru", configuration(**RAILS).rackup
    end

    def test_a_wrong_option_is_named_with_what_was_meant
      _, said = capture_io { configuration(worker: "2") }

      assert_match(/worker: there is no such option.*Did you mean `workers`\?/, said)
    end

    def test_what_rails_and_rackup_pass_is_known
      _, said = capture_io do
        configuration(**RAILS, environment: "production", pid: nil, server: nil, restart_cmd: "bin/rails server")
        configuration(environment: "development", pid: nil, Port: 9292, Host: "localhost", AccessLog: [],
                      config: "config.ru")
      end

      assert_empty said
    end

    def test_rackup_lists_the_options
      command = [RbConfig.ruby, Gem.bin_path("rackup", "rackup"), "-s", "fairlead", "-h"]
      written = IO.popen(command, chdir: @directory, err: %i[child out], &:read)

      assert_match(/^  -O drain_timeout=SECONDS +How long/, written)
    end

    # The real command.
    class RackupProcess < ServerProcess
      private

      def command
        [RbConfig.ruby, *LIBRARY.flat_map { |folder| ["-I", folder] }, Gem.bin_path("rackup", "rackup"), "-s", "fairlead",
         "-o", "127.0.0.1", "-p", "0", "-P", path("rackup.pid")]
      end

      def flags = @flags
    end

    # With workers the init process starts it beside the old code, else it begins anew in its place.
    def test_touching_a_file_has_rackup_start_new_code
      [0, 1].each do |workers|
        server = of_this_test(RackupProcess.new(answering("old"), "-O", "workers=#{workers}")).start.wait_until_ready
        pid = server.pid.to_s
        server.write("config.ru", answering("new"))
        server.write("tmp/restart.txt", "")
        eventually("the new code") { server.get_meanwhile.body == "new" } # no connection is refused

        server.wait_for_notification("READY=1")
        eventually("the end of the old code") { server.worker_pids.size == workers }
        assert_equal [pid], [File.read(server.path("rackup.pid")).strip]
        assert_empty Dir[server.path("rackup.pid.*")]
        assert_match(/tmp\/restart\.txt has been touched/, server.log)
        assert_predicate server.stop, :success?
        refute_path_exists server.path("rackup.pid")
      end
    end

    def test_code_that_cannot_be_loaded_leaves_the_old_one_serving
      [0, 1].each do |workers|
        server = of_this_test(RackupProcess.new(answering("old"), "-O", "workers=#{workers}", lint: false)).start.wait_until_ready
        server.write("config.ru", "run(")
        server.signal(:USR2)
        eventually("it is told") { server.log.include?("The new code could not be started; the old code continues to serve.\n") }
        eventually("where") { server.log.include?("config.ru:1: ") }

        assert_equal "old", server.get.body
        assert_equal server.pid.to_s, File.read(server.path("rackup.pid")).strip
        server.write("config.ru", answering("new"))
        server.signal(:USR2)
        eventually("the new code") { server.get_meanwhile.body == "new" }
        assert_predicate server.stop, :success?
        assert_empty Dir[server.path("rackup.pid*")]
      end
    end

    # Nobody knows how another program was started.
    class Program < ServerProcess
      CODE = <<~RUBY
        require "rackup/handler/fairlead"
        app = ->(_) { [200, {}, ["old"]] }
        Rackup::Handler::Fairlead.run(app, Host: "127.0.0.1", Port: 0, workers: ARGV.first, environment: "test")
      RUBY

      private

      def command = [RbConfig.ruby, *LIBRARY.flat_map { |folder| ["-I", folder] }, "-e", CODE]
      def flags = @flags
    end

    def test_a_program_that_runs_the_handler_itself_is_not_restarted_and_the_command_says_why
      %w[0 1].each do |workers|
        server = of_this_test(Program.new(nil, workers)).start.wait_until_ready
        2.times do
          text, status = Open3.capture2e(RbConfig.ruby, "-I", File.join(ROOT, "lib"), File.join(ROOT, "exe/fairlead"), "restart",
                                         "--pid", server.pid.to_s)
          assert_equal [1, "old"], [status.exitstatus, server.get.body]
          assert_equal "fairlead: The new code could not be started; the old code continues to serve.\n" \
                       "Hot restart is unavailable: the start command is unknown.\n", text
        end
        assert_predicate server.stop, :success?
      end
    end

    def test_who_is_told_to_end_just_before_rackup_begins_anew_ends
      config = "Fairlead::Foreground.prepend(Module.new { def replace_process = Process.kill(:TERM, Process.pid) && super })"
      server = of_this_test(RackupProcess.new(answering("text"), files: { "config/fairlead.rb" => config }))
      server.start.wait_until_ready
      server.signal(:USR2)

      assert_predicate server.wait_for_end, :success?
      refute_path_exists server.path("rackup.pid")
    end

    def test_what_it_yields_can_be_stopped
      answers = Thread::Queue.new
      app = ->(_) { [200, {}, ["served"]] }
      @port = Bench::FreePort.find
      options = { Host: "127.0.0.1", Port: @port, environment: "test" }
      said, = capture_io do
        ::Rackup::Handler::Fairlead.run(app, **options) do |server|
          Thread.new do
            answers << eventually("it serves") { answer }
            server.stop
          end
        end
      end

      assert_equal "served", answers.pop
      assert_includes said, "http://127.0.0.1:#{@port}"
    ensure
      Fairlead.instance_variable_set(:@serving, false)
    end

    private

    def answering(text) = "run ->(env) { [200, { \"content-type\" => \"text/plain\" }, [#{text.inspect}]] }"

    def answer
      Net::HTTP.get("127.0.0.1", "/", @port)
    rescue SystemCallError
      nil
    end

    def configure(text)
      FileUtils.mkdir_p(File.join(@directory, "config"))
      File.write(File.join(@directory, "config/fairlead.rb"), text)
    end

    def configuration(**options)
      Dir.chdir(@directory) { ::Rackup::Handler::Fairlead.configuration(options) }
    end
  end
end
