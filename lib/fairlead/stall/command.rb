# frozen_string_literal: true

require "json"
require "optparse"

module Fairlead
  class Stall
    # `fairlead stalls`: the worst stalls of a running server.
    class Command
      INTRODUCTION = <<~TEXT
        Usage: fairlead stalls [flags]

        Lists the requests that have kept a running server's reactors longest, by route:
        for how long, where, why, and what helps. The server is the one that runs in this
        folder, or the only one of this user.

      TEXT
      MOST = 20
      private_constant :MOST

      # @param arguments [Array<String>]
      # @param output [IO]
      # @param servers [#call] answers what runs (see Inquiry).
      def initialize(arguments, output: $stdout, servers: -> { Inquiry.servers })
        @arguments = arguments
        @output = output
        @servers = servers
        @most = MOST
      end

      # @raise [ConfigurationError] if no server, or none alone, is meant.
      def run
        rest = parser.parse(@arguments)
        raise ConfigurationError, "`fairlead stalls` takes flags alone, not #{rest.first}." if rest.any?
        return @output.write(parser.help) if @help

        server = Inquiry.choose(@servers.call, pid: @pid)
        stalls = server[:stalls].first(@most)
        @output.write(@json ? "#{JSON.pretty_generate(server.merge(stalls:))}\n" : Table.new(server, stalls).to_s)
      rescue OptionParser::ParseError => error
        raise ConfigurationError, "#{error.message}. `fairlead stalls --help` lists the flags."
      end

      private

      def parser
        @parser ||= OptionParser.new do |parser|
          parser.banner = INTRODUCTION
          parser.on("--pid PID", Integer, "The server whose first process it is.") { |pid| @pid = pid }
          parser.on("-n", "--most NUMBER", Integer, "How many to list, up to 40. Default: #{MOST}.") do |most|
            @most = most.clamp(1, 40)
          end
          parser.on("--json", "All that is known, with backtraces, as JSON.") { @json = true }
          parser.on("-h", "--help", "Print this.") { @help = true }
        end
      end
    end
  end
end
