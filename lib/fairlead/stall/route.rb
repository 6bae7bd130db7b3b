# frozen_string_literal: true

module Fairlead
  class Stall
    # The path of a request with a pattern in place of what differs from one to the next.
    module Route
      PART = %r{(?<=/)(?:(\d+)|([\h-]*\d[\h-]{7,}|[\w.~+%=-]{24,}))(?=/|\z)}
      private_constant :PART

      # @param method [String]
      # @param path [String] as it was asked for, or as Rails' routes have it: "/orders/:id(.:format)"
      # @return [String] "GET /orders/:id"
      def self.of(method, path)
        "#{method} #{path.delete_suffix("(.:format)").gsub(PART) { Regexp.last_match(1) ? ":id" : ":token" }}"
      end
    end
  end
end
