# frozen_string_literal: true

require "json"
require_relative "../parts"

module Fairlead
  class Stall
    # `fairlead stalls`: the worst stalls of a running server.
    class Command < Inquiry::Command
      INTRODUCTION = <<~TEXT
        Usage: fairlead stalls [flags]

        Lists the requests that have kept a running server's reactors longest, by route:
        for how long, where, why, and what helps. The server is the one that runs in this
        folder, or the only one of this user.

      TEXT
      MOST = 20
      private_constant :MOST

      def initialize(...)
        super
        @most = MOST
      end

      private

      def name = "stalls"

      def introduction = INTRODUCTION

      def flags(parser)
        parser.on("-n", "--most NUMBER", Integer, "How many to list, up to 40. Default: #{MOST}.") do |most|
          @most = most.clamp(1, 40)
        end
        parser.on("--json", "All that is known, with backtraces, as JSON.") { @json = true }
      end

      def act(server)
        stalls = server[:stalls].first(@most)
        @output.write(@json ? "#{JSON.pretty_generate(server.except(:status).merge(stalls:))}\n" : Table.new(server, stalls).to_s)
      end
    end
  end
end
