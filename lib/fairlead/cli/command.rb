# frozen_string_literal: true

require "optparse"
require_relative "../parts"

module Fairlead
  class Inquiry
    # A subcommand of `fairlead` that is about a running server. Who inherits says its `name` and `introduction`, its own
    # `flags(parser)` if it has any, what it does: `act(server)`, and whether that is for a server of this folder
    # `only_here?`, unless another is named.
    class Command
      # @param arguments [Array<String>]
      # @param output [IO]
      # @param errors [IO] for what is said beside it.
      # @param servers [#call] answers what runs (see Inquiry).
      def initialize(arguments, output: $stdout, errors: $stderr, servers: -> { Inquiry.servers })
        @arguments = arguments
        @output = output
        @errors = errors
        @servers = servers
      end

      # @raise [ConfigurationError] if no server, or none alone, is meant.
      def run
        rest = parser.parse(@arguments)
        raise ConfigurationError, "`fairlead #{name}` takes flags alone, not #{rest.first}." if rest.any?
        return @output.write(parser.help) if @help

        server = choose
        say_where(server) unless @pid || Inquiry.here?(server)
        act(server)
      rescue OptionParser::ParseError => error
        raise ConfigurationError, "#{error.message}. `fairlead #{name} --help` lists the flags."
      end

      private

      # @return [Hash]
      def choose = Inquiry.choose(@answers = @servers.call, pid: @pid, only_here: only_here?)

      def parser
        @parser ||= OptionParser.new do |parser|
          parser.banner = introduction
          parser.on("--pid PID", Integer, "The server whose first process it is.") { |pid| @pid = pid }
          flags(parser)
          parser.on("-h", "--help", "Print this.") { @help = true }
        end
      end

      def flags(parser) = nil

      def only_here? = false

      def say_where(server)
        @errors.puts "fairlead: No server runs in #{Dir.pwd}. This is the only one of this user, in #{server[:folder]} " \
                     "(--pid #{server[:pid]}).\n\n"
      end
    end
  end
end
