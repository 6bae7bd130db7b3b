# frozen_string_literal: true

require_relative "../helper"
require_relative "../configuration_reference"

module Fairlead
  # Covers configuration/option.rb, configuration/script.rb, configuration/table.rb
  class ConfigurationTest < Test
    def setup
      super
      @folder = File.realpath(Dir.mktmpdir("fairlead-"))
      @before = Dir.pwd
      Dir.chdir(@folder)
    end

    def teardown
      Dir.chdir(@before)
      FileUtils.remove_entry(@folder)
      super
    end

    def test_without_anything_all_is_default
      configuration = load

      assert_equal ["http://127.0.0.1:9292"], configuration.bind
      assert_equal Etc.nprocessors, configuration.workers
      assert_equal "config.ru", configuration.rackup
      assert_equal "development", configuration.environment
      assert configuration.preload
      assert_equal 10 * 1024**3, configuration.body_size
      assert_in_delta 30.0, configuration.drain_timeout
      assert_nil configuration.file
    end

    def test_flag_before_variable_before_file_before_default
      write("config/fairlead.rb", "drain_timeout 1\nidle_timeout 1\nhead_timeout 1\n")
      variables = { "FAIRLEAD_IDLE_TIMEOUT" => "2", "FAIRLEAD_HEAD_TIMEOUT" => "2" }
      configuration = load(variables:, head_timeout: 3)

      assert_equal [1.0, 2.0, 3.0, 30.0],
                   [configuration.drain_timeout, configuration.idle_timeout, configuration.head_timeout,
                    configuration.body_timeout]
      names = %i[drain_timeout idle_timeout head_timeout body_timeout]
      sources = names.map { |name| configuration.source(name) }
      assert_equal ["config/fairlead.rb:1", "the environment variable FAIRLEAD_IDLE_TIMEOUT", "head_timeout",
                    "default"], sources
    end

    def test_every_option_is_a_word_a_variable_and_an_override
      samples = {
        integer: ["7", 7], seconds: ["7", 7.0], fraction: ["0.7", 0.7], bytes: ["64K", 65_536], boolean: ["false", false],
        path: ["some/file", "some/file"], url_path: ["/up", "/up"], endpoint: ["/up", "/up"], text: ["text", "text"],
        uris: ["unix:/a", ["unix:/a"]], paths: ["a b.pem,c", ["a b.pem", "c"]], networks: ["10.0.0.0/8", ["10.0.0.0/8"]],
        hosts: ["Example.com www.example.com", %w[example.com www.example.com]], hsts: ["60", "max-age=60"]
      }
      Configuration::TABLE.each_value do |option|
        written, expected = samples.fetch(option.kind) { [option.choices.last] * 2 }

        assert_equal expected, Configuration.new(option.name => written).public_send(option.name)
        assert_equal expected, load(variables: { option.variables.first => written }).public_send(option.name)
        write("config/fairlead.rb", "#{option.name} #{written.inspect}")
        assert_equal expected, load.public_send(option.name)
      end
    end

    def test_the_variables_that_everybody_knows
      variables = { "WEB_CONCURRENCY" => "3", "RACK_ENV" => "production", "PORT" => "4000", "PIDFILE" => "server.pid" }
      configuration = load(variables:)

      assert_equal 3, configuration.workers
      assert_equal %w[production server.pid], [configuration.environment, configuration.pidfile]
      assert_equal ["4000"], configuration.bind.map { |uri| uri[/\d+\z/] }
      assert_equal "staging", load(variables: variables.merge("RAILS_ENV" => "staging")).environment
    end

    def test_a_mere_port_is_for_this_machine_in_development_and_for_all_in_production
      assert_equal ["http://127.0.0.1:4000"], load(variables: { "PORT" => "4000" }).bind
      assert_equal ["http://127.0.0.1:4000"], load(variables: { "PORT" => "4000", "RAILS_ENV" => "test" }).bind
      production = load(variables: { "PORT" => "4000", "RAILS_ENV" => "production" }).bind

      assert_includes [["http://0.0.0.0:4000"], ["http://[::]:4000"]], production
    end

    def test_an_empty_variable_is_none
      assert_equal Etc.nprocessors, load(variables: { "WEB_CONCURRENCY" => "", "PORT" => "" }).workers
    end

    def test_auto_is_a_worker_for_each_core
      assert_equal Etc.nprocessors, load(variables: { "WEB_CONCURRENCY" => "auto" }).workers
      write("config/fairlead.rb", "workers :auto")

      assert_equal Etc.nprocessors, load.workers
    end

    def test_addresses_add_up_in_one_place_and_replace_those_of_a_lesser_one
      write("config/fairlead.rb", "bind \"http://127.0.0.1:1\"\nbind \"unix:/a\"\nport 7\n")

      assert_equal ["http://127.0.0.1:1", "unix:/a", "http://127.0.0.1:7"], load.bind
      assert_equal ["unix:/b", "unix:/c"], load(variables: { "FAIRLEAD_BIND" => "unix:/b,unix:/c" }).bind
    end

    def test_a_file_may_read_options_and_use_ruby
      write("config/fairlead.rb", <<~RUBY)
        environment "production"
        workers Integer(ENV.fetch("SOMETHING", "2")) + 1
        tag "app in \#{environment}"
        require "set"
        access_log :json if environment == "production"
      RUBY
      configuration = load

      assert_equal 3, configuration.workers
      assert_equal "app in production", configuration.tag
      assert_equal "json", configuration.access_log
    end

    def test_hooks_run_in_order_and_are_known_by_other_names
      write("config/fairlead.rb", <<~RUBY)
        after_fork { |index| $order << [:first, index] }
        on_worker_boot { |index| $order << [:second, index] }
        before_worker_shutdown { |index| $order << [:exit, index] }
      RUBY
      configuration = load
      $order = []
      configuration.run_hook(:after_fork, 3)
      configuration.run_hook(:before_worker_exit, 3)
      configuration.run_hook(:on_restart)

      assert_equal [[:first, 3], [:second, 3], [:exit, 3]], $order
    end

    def test_a_hook_without_a_block_is_a_mistake
      assert_refused("after_fork\n", "config/fairlead.rb:1: `after_fork` needs a block")
    end

    def test_a_value_that_cannot_be_names_file_line_and_what_would_be_right
      assert_refused("tag \"x\"\n\nworkers \"many\"\n",
                     "config/fairlead.rb:3: `workers` must be a whole number from 0 to 60, or auto, not \"many\".")
      assert_refused("drain_timeout 0", "`drain_timeout` must be a number of seconds from 0.001 to 86400, not")
      assert_refused("body_size \"ten\"",
                     "`body_size` must be a number of bytes, like 65536, \"64K\", \"10M\" or \"1G\"")
      assert_refused("preload \"maybe\"", "`preload` must be true or false, not \"maybe\".")
      assert_refused("access_log \"xml\"", "`access_log` must be one of off, common, json, not \"xml\".")
      assert_refused("headers 1000", "`headers` must be a whole number from 1 to 256, not 1000.")
      assert_refused("port 70_000",
                     "config/fairlead.rb:1: a port is a whole number from 0 to 65535, not 70000.")
    end

    def test_a_wrong_variable_is_named
      error = assert_raises(ConfigurationError) { load(variables: { "WEB_CONCURRENCY" => "many" }) }

      assert_match(/\Athe environment variable WEB_CONCURRENCY: `workers` must be/, error.message)
    end

    def test_an_unknown_option_suggests_the_nearest
      assert_refused("worker 2", "config/fairlead.rb:1: there is no option `worker`. Did you mean `workers`?")
      assert_refused("\ndrain_time 2",
                     "config/fairlead.rb:2: there is no option `drain_time`. Did you mean `drain_timeout`?")
      error = assert_raises(ConfigurationError) { Configuration.new(in_fligth: 2) }
      assert_equal "in_fligth: there is no option `in_fligth`. Did you mean `in_flight`?", error.message
    end

    def test_words_of_another_server_are_explained
      assert_refused("threads 5, 5",
                     "config/fairlead.rb:1: there is no option `threads`. There is nothing to tune")
      assert_refused("preload_app!", "Write `preload true`")
      assert_refused("ssl_bind \"0.0.0.0\", 443", "Write `bind \"https://…\"`")
      assert_refused("prune_bundler", "Remove the line")
      assert_refused("lowlevel_error_handler { |error| [500, {}, []] }", "Rescue it in a middleware")
      assert_refused("http_content_length_limit 1", "Write `body_size` instead.")
    end

    def test_what_can_be_off_can_be_true_or_false_as_well
      { "off" => "off", "false" => "off", "0" => "off", "true" => "fork", "1" => "fork", "async" => "async" }.each do |written, read|
        assert_equal read, load(variables: { "SOLID_QUEUE_IN_PUMA" => written }).solid_queue, written
      end
      assert_equal %w[fork off common], [load(solid_queue: true).solid_queue, load(solid_queue: false).solid_queue, load(access_log: true).access_log]
      assert_raises(ConfigurationError) { load(permanent_connection_checkout: true) }
    end

    def test_a_syntax_error_names_file_and_line
      assert_refused("workers 2\nworkers 3 do |\n", %r{^config/fairlead\.rb:[23]: .*syntax error}m)
    end

    def test_an_exception_names_file_and_line
      assert_refused("workers 2\n\nbind nonsense.upcase\n",
                     "config/fairlead.rb:3: there is no option `nonsense`.")
      assert_refused("workers 2\nInteger(\"x\")\n",
                     "config/fairlead.rb:2: ArgumentError: invalid value for Integer")
      assert_refused("Nonsense\n", "config/fairlead.rb:1: NameError: uninitialized constant")
      assert_refused("require \"no/such/library\"\n", "config/fairlead.rb:1: LoadError: cannot load such file")
    end

    def test_a_file_that_is_not_there
      error = assert_raises(ConfigurationError) { load("missing.rb") }

      assert_equal "The configuration file missing.rb cannot be read: No such file or directory. " \
                   "Name another with --config, or create it.", error.message
    end

    def test_false_reads_no_file
      write("config/fairlead.rb", "workers 7")

      assert_equal 7, load.workers
      assert_equal Etc.nprocessors, load(false).workers
    end

    def test_the_reference_page_is_current
      page = File.join(ROOT, "guides/reference/configuration.md")
      text = Configuration::Reference.to_markdown
      if ENV["FAIRLEAD_WRITE_GUIDES"]
        FileUtils.mkdir_p(File.dirname(page))
        File.write(page, text)
      end

      assert_equal File.read(page), text, "Run this test with FAIRLEAD_WRITE_GUIDES=1"
    end

    def test_the_example_of_the_guide_can_be_read
      write("config/fairlead.rb", File.read(File.join(ROOT, "guides/configuration.md"))[/```ruby\n(.*?)```/m, 1])

      assert_equal 4, load.workers
    end

    private

    def load(file = nil, variables: {}, **overrides) = Configuration.load(file, variables:, **overrides)

    def write(path, text)
      FileUtils.mkdir_p(File.dirname(path))
      File.write(path, text)
    end

    def assert_refused(text, message)
      write("config/fairlead.rb", text)
      error = assert_raises(ConfigurationError) { load }

      message.is_a?(Regexp) ? assert_match(message, error.message) : assert_includes(error.message, message)
    end
  end
end
