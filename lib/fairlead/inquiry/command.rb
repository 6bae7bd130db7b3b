# frozen_string_literal: true

require "optparse"
require_relative "../parts"

module Fairlead
  class Inquiry
    # A subcommand of `fairlead` that is about a running server. Who inherits says its `name` and `introduction`, its own
    # `flags(parser)` if it has any, and what it does: `act(server)`.
    class Command
      # @param arguments [Array<String>]
      # @param output [IO]
      # @param servers [#call] answers what runs (see Inquiry).
      def initialize(arguments, output: $stdout, servers: -> { Inquiry.servers })
        @arguments = arguments
        @output = output
        @servers = servers
      end

      # @raise [ConfigurationError] if no server, or none alone, is meant.
      def run
        rest = parser.parse(@arguments)
        raise ConfigurationError, "`fairlead #{name}` takes flags alone, not #{rest.first}." if rest.any?
        return @output.write(parser.help) if @help

        act(Inquiry.choose(@servers.call, pid: @pid))
      rescue OptionParser::ParseError => error
        raise ConfigurationError, "#{error.message}. `fairlead #{name} --help` lists the flags."
      end

      private

      def parser
        @parser ||= OptionParser.new do |parser|
          parser.banner = introduction
          parser.on("--pid PID", Integer, "The server whose first process it is.") { |pid| @pid = pid }
          flags(parser)
          parser.on("-h", "--help", "Print this.") { @help = true }
        end
      end

      def flags(parser) = nil
    end
  end
end
