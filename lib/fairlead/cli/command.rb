# frozen_string_literal: true

require "optparse"

module Fairlead
  class CLI
    # A subcommand that asks a running server. Subclasses define `INTRODUCTION`, `act(server)`, and, where they need it, `flags(parser)` and
    # `only_here?`: whether a server of another folder has to be named.
    class Command
      def initialize(arguments, output: $stdout, errors: $stderr, servers: ControlSocket.method(:servers))
        @arguments = arguments
        @output = output
        @errors = errors
        @servers = servers
      end

      # @return [Integer] the exit status.
      # @raise [ConfigurationError] for a wrong flag, or if it is unclear which server is meant.
      def run
        rest = parser.parse(@arguments)
        raise ConfigurationError, "`fairlead #{name}` takes only flags, not #{rest.first}." if rest.any?

        @help ? @output.write(parser.help) : ask
        0
      rescue OptionParser::ParseError => error
        raise ConfigurationError, "#{error.message}. `fairlead #{name} --help` lists the flags."
      end

      private

      def ask
        server = select(@answers = @servers.call, @pid)
        say_where(server) unless @pid || ServerSelection.here?(server)
        act(server)
      end

      def select(servers, pid) = ServerSelection.new(servers, pid:, only_here: only_here?).server

      def name = self.class.name[/\w+\z/].downcase

      def parser
        @parser ||= OptionParser.new do |parser|
          parser.banner = self.class::INTRODUCTION
          parser.on("--pid PID", Integer, "The server with this process id.") { |pid| @pid = pid }
          flags(parser)
          parser.on("-h", "--help", "Print this help.") { @help = true }
        end
      end

      def flags(_parser) = nil

      def only_here? = false

      def say_where(server)
        @errors.puts "fairlead: No server runs in #{Dir.pwd}. The only one of this user runs in #{server[:folder]} " \
                     "(--pid #{server[:pid]}).\n\n"
      end
    end
  end
end
