# frozen_string_literal: true

module Fairlead
  class Doctor
    # Finds gems that block or need a setting.
    module Gems
      LIBCURL = "Use Net::HTTP (or Faraday's net_http adapter), httpx or async-http, or wrap the calls in " \
                "Fairlead.offload { … }."
      RUBY_DRIVER = "Use redis-client's own driver: remove the gem, and `driver: :hiredis` where it is set."

      # name => [level, what, remedy]
      KNOWN = {
        "curb" => [:hurts, "libcurl blocks its thread, and so all requests of a worker, while it waits.", LIBCURL],
        "typhoeus" => [:hurts, "libcurl blocks its thread, and so all requests of a worker, while it waits.", LIBCURL],
        "patron" => [:hurts, "libcurl blocks its thread, and so all requests of a worker, while it waits.", LIBCURL],
        "hiredis" => [:hurts, "its C client blocks the thread of all requests of a worker.", RUBY_DRIVER],
        "hiredis-client" => [:hurts, "its C client blocks the thread of all requests of a worker.", RUBY_DRIVER],
        "rack-timeout" => [:note, "a request that computes or blocks gets its exception at its next wait.",
                           "The option request_timeout answers the client at once: guides/deadlines.md."],
        "request_store" => [:note, "its store belongs to a fiber: empty in each request, invisible to tasks that a request " \
                                   "starts (Async { … }).",
                            "Pass those what they need, or use ActiveSupport::CurrentAttributes."],
        "stripe" => [:note, "its connections stay open between requests; each task that a request starts (Async { … }) opens " \
                            "its own, for minutes.",
                     "Call it from the request itself, or pass results to tasks."],
        "bunny" => [:note, "a channel serves one request at a time. One that is kept in Thread.current[…] is opened again in " \
                           "each request and never closed.",
                    "Keep one Bunny connection in a constant, and its channels in a pool: guides/fair-pool.md."]
      }.freeze
      private_constant :LIBCURL, :RUBY_DRIVER, :KNOWN

      def self.findings
        KNOWN.filter_map do |name, (level, what, remedy)|
          gem = Gem.loaded_specs[name]
          Finding.new(level:, what: "#{name} #{gem.version}: #{what}", remedy:) if gem
        end
      end
    end
  end
end
