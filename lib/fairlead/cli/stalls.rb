# frozen_string_literal: true

require "json"

module Fairlead
  class CLI
    # `fairlead stalls`: the worst stalls of a running server.
    class Stalls < Command
      INTRODUCTION = <<~TEXT
        Usage: fairlead stalls [flags]

        Lists the requests that have held up a running server for longest, by route: for how
        long, where, why, and what helps. It asks the server of this folder, or the only one
        of this user.

      TEXT
      MOST = 20
      private_constant :MOST

      private

      def flags(parser)
        parser.on("-n", "--most NUMBER", Integer, "How many to list, up to 40. Default: #{MOST}.") { |most| @most = most }
        parser.on("--json", "Print all details, with backtraces, as JSON.") { @json = true }
      end

      def act(server)
        stalls = server[:stalls].first((@most || MOST).clamp(1, 40))
        text = @json ? "#{JSON.pretty_generate(server.except(:status).merge(stalls:))}\n" : StallsTable.new(server, stalls).to_s
        @output.write(text)
      end
    end
  end
end
