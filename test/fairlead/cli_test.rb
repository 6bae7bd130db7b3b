# frozen_string_literal: true

require_relative "../helper"
require "stringio"

module Fairlead
  # Covers cli/command.rb, cli/flags.rb, cli/serve.rb, supervision/banner.rb
  class CLITest < Test
    HELLO = "run ->(env) { [200, {}, [\"hello\"]] }"

    def test_help_names_every_option_and_fits_a_terminal
      status, output, errors = run_command("--help")

      assert_equal 0, status
      assert_empty errors
      Configuration::TABLE.each_value do |option|
        assert_match(/#{option.flag.sub("--", "--(\\[no-\\])?")}\b/, output)
      end
      %w[TERM HUP TTIN USR1 WEB_CONCURRENCY config/fairlead.rb].each { |word| assert_includes output, word }
      assert_empty output.lines(chomp: true).select { |line| line.length > 100 }
      assert_equal output, run_command("-h")[1]
    end

    def test_version
      assert_equal [0, "Fairlead #{VERSION}\n", ""], run_command("--version")
    end

    def test_a_wrong_flag_is_one_message_and_status_1
      assert_equal [1, "", "fairlead: There is no flag --worker. Did you mean --workers? " \
                           "`fairlead --help` lists all flags.\n"], run_command("--worker", "2")
      assert_equal [1, "", "fairlead: There is no flag -z. `fairlead --help` lists all flags.\n"],
                   run_command("-z")
      assert_equal [1, "", "fairlead: The flag --workers needs a value; see `fairlead --help`.\n"],
                   run_command("--workers")
    end

    def test_a_wrong_value_names_the_flag
      assert_equal [1, "", "fairlead: --workers: `workers` must be a whole number from 0 to 60, or auto, " \
                           "not \"many\".\n"], run_command("-w", "many")
      assert_equal [1, "", "fairlead: --port: a port is a whole number from 0 to 65535, not \"high\".\n"],
                   run_command("-p", "high")
      assert_equal [1, "", "fairlead: Fairlead serves one file, not 2: a.ru, b.ru.\n"],
                   run_command("a.ru", "b.ru")
    end

    def test_the_command_itself_ends_with_a_message_and_without_a_backtrace
      refused = refuse(HELLO, "--drain-timeout", "-1")

      assert_equal "fairlead: --drain-timeout: `drain_timeout` must be a number of seconds from 0.001 to " \
                   "86400, not \"-1\".\n", refused
    end

    def test_a_taken_port_is_told_before_the_app_is_loaded
      listener = Listener.open("http://127.0.0.1:0")
      message = refuse("raise \"loaded\"", "-p", listener.port.to_s)

      assert_match(%r{^fairlead: http://127\.0\.0\.1:#{listener.port} is taken: another server}, message)
      refute_match(/loaded/, message)
    ensure
      listener.close
    end

    def test_a_missing_config_ru
      message = refuse(nil)

      assert_match(/^fairlead: There is no config\.ru in .*\.$/, message)
      assert_match(%r{fairlead path/to/config\.ru}, message)
      assert_no_backtrace message
    end

    def test_a_mistyped_command
      assert_match(/^fairlead: There is no sttaus in .*\. Did you mean `fairlead status`\?$/, refuse(HELLO, "sttaus"))
    end

    def test_a_syntax_error_in_config_ru
      message = refuse("\nrun ->(env) { [200 }\n", lint: false)

      assert_match(/^fairlead: The app could not be loaded from config\.ru\.$/, message)
      assert_match(/^config\.ru:2: .*syntax error/, message)
      assert_no_backtrace message
    end

    def test_an_exception_in_config_ru
      message = refuse("\nnonsense\n", lint: false)

      assert_match(/^config\.ru:2: NameError: undefined local variable or method [`']nonsense'/, message)
      assert_match(/^Fix it and start again; --debug shows the full backtrace\.$/, message)
      assert_no_backtrace message
    end

    def test_an_exception_in_a_file_that_config_ru_loads_names_that_file
      message = refuse("require_relative \"lib/app\"\nrun App",
                       files: { "lib/app.rb" => "\n\nApp = Hash.new.fetch(:app)\n" })

      assert_match(%r{^lib/app\.rb:3: KeyError: key not found: :app}, message)
    end

    def test_an_exception_raised_in_a_library_names_the_line_that_led_there_too
      message = refuse("require \"json\"\nJSON.parse(\"{\")\nrun App", lint: false)

      assert_match(/^config\.ru:2: JSON::ParserError: /, message)
      assert_match(%r{^  raised in /}, message)
    end

    def test_a_library_that_is_not_there
      message = refuse("require \"no_such_library\"", lint: false)

      assert_match(/^config\.ru:1: LoadError: cannot load such file -- no_such_library/, message)
      assert_match(/Add its gem to the Gemfile/, message)
    end

    def test_a_config_ru_that_runs_nothing
      message = refuse("# nothing", lint: false)

      assert_match(/^config\.ru(:\d+)?: .*(missing run or map statement|run)/, message)
    end

    def test_debug_shows_the_backtrace
      message = refuse("\nnonsense\n", "--debug", lint: false)

      assert_match(%r{^    /.*config\.ru:2:in }, message)
      assert_match(%r{^    /.*rack/builder\.rb:}, message)
    end

    def test_a_broken_configuration_file
      assert_match(/^fairlead: config\/fairlead\.rb:2: there is no option `worker`/,
                   refuse(HELLO, files: { "config/fairlead.rb" => "tag \"a\"\nworker 2\n" }))
      assert_match(/^fairlead: The configuration file missing\.rb cannot be read/,
                   refuse(HELLO, "-C", "missing.rb"))
    end

    def test_an_error_in_the_configuration_file_is_said_with_its_line_and_what_to_do
      { "workers (\n" => /other\.rb:1: .*syntax error/m, "\ntag NAME\n" => /other\.rb:2: NameError: /,
        "\n\nworkers Integer(\"two\")" => /other\.rb:3: ArgumentError: / }.each do |text, error|
        message = refuse(HELLO, "-C", "other.rb", files: { "other.rb" => text })

        assert_match(/^fairlead: The configuration file has an error\.\n#{error}.*^Fix it and start again; --debug/m, message)
        assert_no_backtrace message
      end
      assert_match(%r{^    /.*other\.rb:1:in }, refuse(HELLO, "-C", "other.rb", "--debug", files: { "other.rb" => "tag NAME" }))
    end

    def test_another_file_can_be_served
      with_server("raise \"the wrong one\"", "apps/other.ru", files: { "apps/other.ru" => HELLO }) do |server|
        assert_equal "hello", server.get.body
      end
    end

    def test_the_environment_is_told_to_the_app
      app = "body = ENV.values_at(\"RACK_ENV\", \"RAILS_ENV\").join(\" \")\nrun ->(env) { [200, {}, [body]] }"

      with_server(app) { |server| assert_equal "development development", server.get.body }
      with_server(app, "-e", "staging", env: { "RAILS_ENV" => "production" }) do |server|
        assert_equal "staging staging", server.get.body
      end
      with_server(app, env: { "RAILS_ENV" => "staging", "RACK_ENV" => "production" }) do |server|
        assert_equal "production staging", server.get.body
      end
    end

    def test_the_banner_says_what_matters_in_five_lines
      with_server(HELLO, "-w", "2", "--in-flight", "50") do |server|
        lines = server.log.lines(chomp: true)

        assert_equal 5, lines.size
        assert_equal "Fairlead #{VERSION} on ruby #{RUBY_VERSION}", lines[0]
        assert_equal "  addresses  #{server.address}", lines[1]
        assert_match(/\A  workers    2 processes( with YJIT)?, up to 50 requests at once in each\z/, lines[2])
        assert_equal "  app        config.ru in #{server.directory}, development", lines[3]
        assert_match(/\A  process    #{server.pid}: Ctrl-C or TERM .*HUP/, lines[4])
      end
    end

    def test_the_banner_says_where_no_relief_can_come_and_what_to_do
      [[%w[-w 1], /only worker serves nothing else\. Set workers/], [%w[-w 2 --no-preload], /without preload, .* Set preload/]].each do |flags, line|
        with_server(HELLO, *flags) do |server|
          assert_match(/\A  relief     none: .*#{line}/, server.log.lines(chomp: true)[5])
        end
      end
    end

    def test_the_banner_says_that_a_build_without_libnghttp2_has_no_http2
      lines = ->(address, http2) { Banner.new(Configuration.new, http2:).lines([address]).grep(/HTTP\/2/) }

      assert_match(/none: Fairlead was built without libnghttp2\. Install .*libnghttp2-dev/, lines["https://127.0.0.1:443", false].first)
      assert_empty lines["https://127.0.0.1:443", true] + lines["http://127.0.0.1:80", false]
    end

    def test_an_interrupt_while_the_app_is_loaded_ends_it_without_a_backtrace
      server = with_server("File.write(\"loading\", \"\")\nsleep", ready: false)
      eventually("loading") { File.exist?(server.path("loading")) }
      status = server.stop(:INT)

      assert_equal 130, status.exitstatus
      assert_no_backtrace server.log
    end

    private

    def run_command(*arguments)
      output = StringIO.new
      errors = StringIO.new
      [CLI.new(arguments, output:, errors:).run, output.string, errors.string]
    end

    # @return [String] what it said, without the banner's first line.
    def refuse(app, *flags, **options)
      server = with_server(app, *flags, ready: false, **options)
      status = server.wait_for_end

      assert_equal 1, status.exitstatus, server.log
      server.log.sub(/\AFairlead .*\n/, "")
    end

    def assert_no_backtrace(text) = refute_match(/^\s+from |:in [`'].*\(.*Error\)/, text)
  end
end
