# frozen_string_literal: true

require "optparse"
require_relative "parts"

module Fairlead
  # The `fairlead` command. Its flags come from the table of options.
  class CLI
    INTRODUCTION = <<~TEXT
      Usage: fairlead [flags] [config.ru]

      Serves a Rack or Rails app: each request in a fiber, one worker per core. Without flags
      it serves config.ru in this folder on http://127.0.0.1:9292; config/fairlead.rb, if
      there is one, sets options.

        fairlead                                  serve this folder's app
        fairlead -p 3000 -w 2                     on port 3000, with two workers
        fairlead -b unix:/run/app.sock -e production
        fairlead restart                          hot restart: replace the running code
        fairlead status                           show what the running server does
        fairlead stalls                           show which requests blocked it, and where
        fairlead doctor -e production             find what would hurt the app under fibers
        fairlead report                           print all of this for a bug report, without secrets
    TEXT

    CONCLUSION = <<~TEXT
      Every flag is also a word in config/fairlead.rb (drain_timeout 60) and an environment
      variable (FAIRLEAD_DRAIN_TIMEOUT=60). Flags override variables, variables override the
      file. Fairlead also reads PORT, WEB_CONCURRENCY, PIDFILE, RAILS_ENV and RACK_ENV.

      Signals to the first process: TERM and INT finish running requests and stop, a second
      one stops at once; USR2 starts new code, which takes over once it serves; HUP replaces
      the workers one by one. Neither fails a request. TTIN and TTOU add and remove a worker;
      USR1 reopens log files.
    TEXT

    # @param arguments [Array<String>]
    # @param output [IO] for what was asked for.
    # @param errors [IO] for what went wrong.
    def initialize(arguments, output: $stdout, errors: $stderr)
      @arguments = arguments.dup
      @output = output
      @errors = errors
      @given = []
      @file = nil
      @action = :serve
    end

    # @return [Integer] the exit status.
    def run
      reporting { act }
    end

    # @return [String] what --help prints.
    def help
      flags = parser.summarize(+"", 30, 78).gsub(/^ +$/, "")
      "#{INTRODUCTION}\n#{flags}\n#{CONCLUSION}"
    end

    # @return [Configuration] what the flags, the environment and the file set.
    # @raise [ConfigurationError]
    def configuration
      parse
      load_configuration
    end

    private

    # @return [Integer] the exit status.
    def act
      return inquire if inquiry

      parse
      case @action
      when :help then @output.write(help)
      when :version then @output.puts("Fairlead #{VERSION}")
      when :doctor then return doctor
      when :serve then return serve
      end
      0
    end

    # @return [Integer] the exit status.
    def reporting
      yield
    rescue Error => error
      @parent ? @parent.failed(error.message) : @errors.puts("fairlead: #{error.message}")
      1
    rescue SignalException => error
      128 + error.signo
    end

    # @return [Class, nil] a subcommand with flags of its own.
    def inquiry
      case @arguments.first
      when "status" then Status::Command
      when "stalls" then Stall::Command
      when "restart" then Restart
      when "report" then Report
      end
    end

    def inquire
      inquiry.new(@arguments.drop(1), output: @output, errors: @errors).run
      0
    end

    # Loads the app as if it were served, and looks at it.
    def doctor
      Fairlead.serving!
      Fairlead.configuration = configuration = load_configuration
      set_environment(configuration)
      AppLoader.load(configuration)
      Doctor.new(configuration).report(@output)
    end

    # @return [Integer] the exit status.
    def serve
      # What comes before there is anything to restart means nothing; it would end the process.
      %i[USR1 USR2].each { |signal| trap(signal) { nil } }
      launch = StartCommand.present(@arguments)
      @parent = ParentLink.find
      Fairlead.serving!
      configuration = load_configuration
      rehearse(configuration)
      return supervise(configuration, launch) if @parent || configuration.workers.zero?

      InitProcess.new(launch, configuration) do |parent|
        @parent = parent
        reporting { supervise(configuration, launch) }
      end.run
    end

    def supervise(configuration, launch)
      set_environment(configuration)
      Supervisor.new(configuration, parent: @parent, again: launch).run
    end

    # Without workers a command shows first that it can take its predecessor's place.
    def rehearse(configuration)
      Rehearsal.pass do
        set_environment(configuration)
        Fairlead.configuration = configuration
        AppLoader.load(configuration)
      end
    end

    def load_configuration
      overrides = @given.group_by(&:first)
      configuration = Configuration.new
      overrides.each_value do |given|
        given.each do |name, value, flag|
          name == :port ? configuration.set_port(value, at: flag) : configuration.set(name, value, at: flag)
        end
      end
      configuration.read_environment(ENV)
      file = @file.nil? && File.exist?(Configuration::DEFAULT_FILE) ? Configuration::DEFAULT_FILE : @file
      configuration.read_file(file) if file && file != "-"
      configuration
    end

    # Frameworks look at these. What was said on the command line is meant for all of them.
    def set_environment(configuration)
      %w[RACK_ENV RAILS_ENV].each do |name|
        next if configuration.origin(:environment) == :environment && ENV[name]

        ENV[name] = configuration.environment
      end
    end

    def parse
      check_spelling
      rest = parser.parse(@arguments)
      @action = :doctor if @action == :serve && rest.first == "doctor" && rest.shift
      return if @action == :help || @action == :version || rest.empty?
      raise ConfigurationError, "One file can be served, not #{rest.size}: #{rest.join(", ")}." if rest.size > 1

      @given << [:rackup, rest.first, "the argument"]
    rescue OptionParser::ParseError => error
      raise ConfigurationError, explain(error)
    end

    def parser
      @parser ||= OptionParser.new do |parser|
        Configuration::GROUPS.each do |group, title|
          parser.separator("#{title}:")
          Configuration::TABLE.each_value { |option| define(parser, option) if option.group == group }
          parser.separator("")
        end
        define_rest(parser)
      end
    end

    def define(parser, option)
      words = [*("-#{option.short}" if option.short), long(option)]
      text = wrap("#{option.description} Default: #{option.default_in_words}.")
      parser.on(*words, *text) { |value| @given << [option.name, value, option.flag] }
      define_port(parser) if option.name == :bind
    end

    def long(option)
      return option.flag.sub("--", "--[no-]") if option.boolean?

      "#{option.flag} #{option.kind == :choice ? option.choices.join("|") : option.placeholder}"
    end

    def define_port(parser)
      text = wrap("Short for --bind: 127.0.0.1 in development and test, every interface elsewhere.")
      parser.on("-p", "--port PORT", *text) { |value| @given << [:port, value, "--port"] }
    end

    def define_rest(parser)
      parser.separator("This command:")
      parser.on("-C", "--config FILE", *wrap("The configuration file; - reads none. Default: " \
                                             "config/fairlead.rb, if it exists.")) { |value| @file = value }
      parser.on("-v", "--version", "Print the version.") { @action = :version }
      parser.on("-h", "--help", "Print this help.") { @action = :help }
    end

    # Into lines that --help can show beside the flags.
    def wrap(text) = text.scan(/\S.{0,56}\S(?=\s|\z)|\S+/)

    # OptionParser accepts abbreviated flags. Those are refused: a new flag could change their meaning.
    def check_spelling
      arguments = @arguments.take_while { |argument| argument != "--" }
      flags = arguments.filter_map { |argument| argument[/\A--[^=]+/] }
      wrong = flags.find { |flag| !known_flags.include?(flag.sub(/\A--no-/, "--")) }
      raise ConfigurationError, no_flag(wrong) if wrong
    end

    def known_flags
      @known_flags ||= Configuration::TABLE.each_value.map(&:flag) + %w[--port --config --version --help]
    end

    def no_flag(flag)
      nearest = DidYouMean::SpellChecker.new(dictionary: known_flags).correct(flag).first
      suggestion = " Did you mean #{nearest}?" if nearest
      "There is no flag #{flag}.#{suggestion} `fairlead --help` lists them all."
    end

    def explain(error)
      flag = error.args.first.to_s[/\A--?[^=]*/]
      case error
      when OptionParser::InvalidOption then no_flag(flag)
      when OptionParser::MissingArgument
        "The flag #{flag} needs a value. `fairlead --help` says which."
      else
        "#{error.message}. `fairlead --help` lists all flags."
      end
    end

  end
end
