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
        "mysql2" => [:note, "it yields while it waits for a query. Fairlead runs its other blocking calls in threads; a slow result " \
                            "of a prepared statement blocks the other requests of its thread.",
                     "`adapter: trilogy` in config/database.yml needs no threads."],
        "request_store" => [:note, "its store belongs to a fiber: empty in each request, invisible to tasks that a request " \
                                   "starts (Async { … }).",
                            "Pass those what they need, or use ActiveSupport::CurrentAttributes."],
        "stripe" => [:note, "its connections stay open between requests; each task that a request starts (Async { … }) opens " \
                            "its own, for minutes.",
                     "Call it from the request itself, or pass results to tasks."],
        "excon" => [:fine, "each request has its own sockets on a persistent connection.", nil],
        "bunny" => [:note, "a channel serves one request at a time. One that is kept in Thread.current[…] is opened again in " \
                           "each request and never closed.",
                    "Keep one Bunny connection in a constant, and its channels in a pool: guides/fair-pool.md."],
        "sentry-ruby" => [:fine, "each request has its own hub, without a setting (hub_isolation_level).", nil],
        "connection_pool" => [:note, "it does not serve waiters in order.",
                              "Fairlead::Pool has the same API and does: guides/fair-pool.md."]
      }.freeze

      # name => [the first version without the fault, level, the fault]
      DRIVERS = {
        "pg" => ["1.3", :hurts, "it blocks the thread of all requests of a worker while it waits."],
        "trilogy" => ["2.11", :note, "the pool may hand out a connection that the server has closed, because it exposes no socket."]
      }.freeze
      private_constant :LIBCURL, :RUBY_DRIVER, :KNOWN, :DRIVERS

      class << self
        def findings
          loaded = Gem.loaded_specs
          found = KNOWN.filter_map do |name, (level, what, remedy)|
            Finding.new(level:, what: "#{name} #{loaded[name].version}: #{what}", remedy:) if loaded[name]
          end
          [*DRIVERS.filter_map { |name, about| driver(name, *about) }, *found]
        end

        private

        def driver(name, first, level, what)
          version = Gem.loaded_specs[name]&.version or return
          fine = version >= Gem::Version.new(first)
          return Finding.new(level: :fine, what: "#{name} #{version} yields while it waits.") if fine

          Finding.new(level:, what: "#{name} #{version}: #{what}",
                      remedy: "Use #{name} #{first} or later: bundle update #{name}.")
        end
      end
    end
  end
end
