# frozen_string_literal: true

require "optparse"

module Fairlead
  class CLI
    # The flags of `fairlead` and `fairlead doctor`, which come from the table of options.
    class Flags
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
          fairlead top                              watch it live
          fairlead stalls                           show which requests blocked it, and where
          fairlead slow                             show the slowest requests, and what they waited for
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
      private_constant :INTRODUCTION, :CONCLUSION

      # @raise [ConfigurationError] for what is no flag, or lacks a value.
      def initialize(arguments)
        @given = [] # name, value and flag
        @action = :serve
        parse(arguments)
      end

      def doctor? = @action == :doctor
      def help? = @action == :help
      def version? = @action == :version

      def help = "#{INTRODUCTION}\n#{parser.summarize(+"", 30, 78).gsub(/^ +$/, "")}\n#{CONCLUSION}"

      # @raise [ConfigurationError]
      def configuration
        configuration = Configuration.new
        @given.each do |name, value, at|
          name == :port ? configuration.set_port(value, at:) : configuration.set(name, value, at:)
        end
        configuration.read(@file == "-" ? false : @file)
      end

      private

      def parse(arguments)
        check_spelling(arguments)
        rest = parser.parse(arguments)
        @action = :doctor if @action == :serve && rest.first == "doctor" && rest.shift
        return if help? || version? || rest.empty?
        raise ConfigurationError, "Fairlead serves one file, not #{rest.size}: #{rest.join(", ")}." if rest.size > 1

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
        flag = option.boolean? ? option.flag.sub("--", "--[no-]") : "#{option.flag} #{option.placeholder}"
        text = wrap("#{option.description} Default: #{option.default_in_words}.")
        parser.on(*("-#{option.short}" if option.short), flag, *text) { |value| @given << [option.name, value, option.flag] }
        define_port(parser) if option.name == :bind
      end

      def define_port(parser)
        text = wrap("Short for --bind: 127.0.0.1 in development and test, every interface elsewhere.")
        parser.on("-p", "--port PORT", *text) { |value| @given << [:port, value, "--port"] }
      end

      def define_rest(parser)
        parser.separator("This command:")
        text = wrap("The configuration file; - reads none. Default: config/fairlead.rb, if it exists.")
        parser.on("-C", "--config FILE", *text) { |value| @file = value }
        parser.on("-v", "--version", "Print the version.") { @action = :version }
        parser.on("-h", "--help", "Print this help.") { @action = :help }
      end

      # Breaks a text into lines that fit beside the flags.
      def wrap(text) = text.scan(/\S.{0,56}\S(?=\s|\z)|\S+/)

      # OptionParser accepts abbreviated flags. Those are refused: a new flag could change their meaning.
      def check_spelling(arguments)
        flags = arguments.take_while { |argument| argument != "--" }.filter_map { |argument| argument[/\A--[^=]+/] }
        wrong = flags.find { |flag| !known.include?(flag.sub(/\A--no-/, "--")) }
        raise ConfigurationError, unknown(wrong) if wrong
      end

      def known = @known ||= Configuration::TABLE.each_value.map(&:flag) + %w[--port --config --version --help]

      def unknown(flag)
        nearest = DidYouMean::SpellChecker.new(dictionary: known).correct(flag).first
        "There is no flag #{flag}.#{" Did you mean #{nearest}?" if nearest} `fairlead --help` lists all flags."
      end

      def explain(error)
        flag = error.args.first.to_s[/\A--?[^=]*/]
        case error
        when OptionParser::InvalidOption then unknown(flag)
        when OptionParser::MissingArgument then "The flag #{flag} needs a value; see `fairlead --help`."
        else "#{error.message}. `fairlead --help` lists all flags."
        end
      end
    end
  end
end
