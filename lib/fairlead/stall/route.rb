# frozen_string_literal: true

module Fairlead
  class Stall
    # The path of a request with a pattern in place of what differs from one to the next.
    module Route
      PART = %r{(?<=/)(?:(\d+)|([\h-]*\d[\h-]{7,}|[\w.~+%=-]{24,}))(?=/|\z)}

      private_constant :PART

      # @param env [Hash]
      # @return [String] "GET /orders/:id"
      def self.of(env)
        pattern = env["action_dispatch.route_uri_pattern"]&.delete_suffix("(.:format)")
        "#{env["REQUEST_METHOD"]} #{pattern || env["PATH_INFO"].to_s.gsub(PART) { $1 ? ":id" : ":token" }}"
      end
    end
  end
end
