# frozen_string_literal: true

require "etc"
require "stringio"

module Fairlead
  class CLI
    # `fairlead report`: versions, configuration, status, stalls and doctor in one text for a bug report, without secrets.
    class Report < Command
      INTRODUCTION = <<~TEXT
        Usage: fairlead report [flags]

        Prints versions, the configuration, the slowest requests by route, the last crash of a
        worker, and what `fairlead status`, `fairlead stalls` and `fairlead doctor` say, in one
        text for a bug report. It prints no passwords, no tokens and no values of environment
        variables. Read it before you publish it all the same.

      TEXT
      # Gems that explain how an app behaves, beside those of {Compatibility}.
      GEMS = %w[
        fairlead-pool rack rails rackup puma falcon bootsnap redis redis-client sidekiq solid_queue
        solid_cable connection_pool opentelemetry-sdk sentry-ruby
      ].freeze
      # Options whose values cannot hold a secret.
      HARMLESS = %i[integer seconds bytes boolean choice].freeze
      # How many slow requests are listed, and as many that run.
      SLOW = 10
      private_constant :GEMS, :HARMLESS, :SLOW

      private

      def ask = @output.write(report)

      def flags(parser)
        parser.on("-e", "--environment TEXT", "The app's environment.") { |name| given.push("--environment", name) }
        parser.on("-C", "--config FILE", "The configuration file.") { |file| given.push("--config", file) }
        parser.on("--no-app", "Leave doctor out, which loads the app.") { @without_app = true }
      end

      def given = @given ||= []

      def report
        sections = { "Versions" => versions, "Configuration" => configuration, "Status" => command("status", *server),
                     "Stalls" => command("stalls", *server), "Slow requests" => slow, "Last crash" => crash }
        sections["Doctor"], secrets = @without_app ? ["Left out (--no-app)."] : doctor
        text = sections.map { |title, body| "## #{title}\n\n#{body.strip}\n" }.join("\n")
        variables = ENV.to_h.except(*Configuration::TABLE.values.select { |option| harmless?(option) }.flat_map(&:variables))
        Redaction.new(Array(secrets), variables:).apply(text)
      end

      def versions
        kernel = Etc.uname
        names = (GEMS | Compatibility::TABLE.values.map(&:gem)) & Gem.loaded_specs.keys
        <<~TEXT
          fairlead #{VERSION} (#{Platform::POLLER})
          #{RUBY_DESCRIPTION}
          #{kernel.values_at(:sysname, :release, :machine).join(" ")}, #{distribution}, #{Etc.nprocessors} processors
          #{names.sort.map { |name| "#{name} #{Gem.loaded_specs[name].version}" }.join(", ")}
        TEXT
      end

      def distribution
        File.read("/etc/os-release")[/^PRETTY_NAME="?(.*?)"?$/, 1]
      rescue SystemCallError
        "no os-release"
      end

      def configuration
        configuration = Flags.new(given).configuration
        set = Configuration::TABLE.each_value.reject { |option| configuration.origin(option.name) == :default }
        lines = set.map { |option| "#{option.name} #{value(configuration, option)} (#{configuration.source(option.name)})" }
        ["File: #{configuration.file || "none"}", *lines, *("Everything else: the default." if lines.any?)].join("\n")
      rescue ConfigurationError => error
        error.message
      end

      def value(configuration, option)
        return "set" if option.secret? || (configuration.origin(option.name) == :environment && !harmless?(option))

        configuration.public_send(option.name).inspect
      end

      def harmless?(option) = HARMLESS.include?(option.kind) || option.name == :environment

      # Of a worker.
      def crash
        of_server do |server|
          server[:crash] ? Crash.new(**server[:crash]).to_s : "None since the server's start."
        end
      end

      # Without their paths, in which secrets may be.
      def slow
        of_server do |server|
          requests = server[:status].fetch(:requests)
          SlowTable.new(server, requests.transform_values { |rows| rows.first(SLOW).map { |row| { **row, path: "…" } } }).to_s
        end
      end

      def of_server
        yield select(@servers.call, @pid)
      rescue ConfigurationError
        "Unknown: no server has answered."
      end

      def server = @pid ? ["--pid", @pid.to_s] : []

      def command(*arguments)
        text = StringIO.new
        CLI.new(arguments, output: text, errors: text).run
        text.string
      end

      # Loads the app, in a child: what the app prints or starts there stays there.
      #
      # @return [(String, Array<String>)] the text without lines of the app's code, and secrets that the app knows.
      def doctor
        result = IO.popen("-", "rb") do |pipe|
          next pipe.read if pipe

          answer = $stdout.dup
          [$stdout, $stderr].each { |io| io.reopen(File::NULL) }
          text = command("doctor", *given).gsub(/^(    \S+:\d+): .*/, "\\1")
          answer.binmode.write(Marshal.dump([text, Redaction.of_app]))
          answer.close
          exit!
        end
        result.empty? ? ["The app ended while it was loaded.", []] : Marshal.load(result)
      end
    end
  end
end
