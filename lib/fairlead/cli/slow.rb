# frozen_string_literal: true

require "json"

module Fairlead
  class CLI
    # `fairlead slow`: the slowest requests of a running server, and what runs for long now.
    class Slow < Command
      INTRODUCTION = <<~TEXT
        Usage: fairlead slow [flags]

        Lists the slowest requests of the last minutes, each with where its time went, the
        addresses that it waited for, and the lines of the app where it waited; then the
        requests that run now. It asks the server of this folder, or the only one of this user.

      TEXT
      MOST = 10
      # Seconds that workers get to report.
      PAUSE = 0.3
      private_constant :MOST, :PAUSE

      private

      def flags(parser)
        parser.on("-n", "--most NUMBER", Integer, "How many to list, up to 40. Default: #{MOST}.") { |most| @most = most }
        parser.on("--json", "Print all details as JSON.") { @json = true }
      end

      # A server asks its workers whenever it is asked, and answers with what they have reported before.
      def act(server)
        sleep PAUSE
        server = select(@servers.call, server[:pid])
        requests = server[:status].fetch(:requests).transform_values { |rows| rows.first((@most || MOST).clamp(1, 40)) }
        text = @json ? "#{JSON.pretty_generate(server.except(:status, :stalls).merge(requests))}\n" : SlowTable.new(server, requests).to_s
        @output.write(text)
      end
    end
  end
end
