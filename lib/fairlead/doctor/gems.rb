# frozen_string_literal: true

module Fairlead
  class Doctor
    # Gems that block, or need a setting.
    module Gems
      LIBCURL = "Use Net::HTTP (or Faraday's net_http adapter), httpx or async-http, or wrap the calls in " \
                "Fairlead.offload { … }."
      RUBY_DRIVER = "Use redis-client's own driver: remove the gem, and `driver: :hiredis` where it is set."

      # name => [level, what, remedy]
      KNOWN = {
        "curb" => [:hurts, "libcurl blocks the thread of all requests of a worker while it waits.", LIBCURL],
        "typhoeus" => [:hurts, "libcurl blocks the thread of all requests of a worker while it waits.", LIBCURL],
        "patron" => [:hurts, "libcurl blocks the thread of all requests of a worker while it waits.", LIBCURL],
        "hiredis" => [:hurts, "its C client blocks the thread of all requests of a worker.", RUBY_DRIVER],
        "hiredis-client" => [:hurts, "its C client blocks the thread of all requests of a worker.", RUBY_DRIVER],
        "rack-timeout" => [:note, "a request that computes or blocks is told that its time is up when it next waits.",
                           "The option request_timeout answers its client at once: guides/deadlines.md."],
        "mysql2" => [:note, "it waits for a query as fibers do, but what else may block (connecting, results that come in " \
                            "pieces) is done in threads. Results of prepared statements that come slowly hold up others.",
                     "`adapter: trilogy` in config/database.yml needs no threads."],
        "request_store" => [:note, "its store belongs to a fiber: fresh in each request, not seen by tasks that a " \
                                   "request starts (Async { … }).",
                            "Hand those what they need, or use ActiveSupport::CurrentAttributes."],
        "stripe" => [:note, "its connections are kept from request to request; each task that a request starts (Async { … }) " \
                            "opens its own, which stay open for minutes.",
                     "Call it from the request itself, or pass results to tasks."],
        "excon" => [:fine, "each request has sockets of its own on a persistent connection.", nil],
        "bunny" => [:note, "a channel serves one request at a time, and one that is kept in Thread.current[…] is opened anew " \
                           "in each request, and never closed.",
                    "Keep one Bunny connection in a constant, and its channels in a pool: guides/fair-pool.md."],
        "sentry-ruby" => [:fine, "its hub is each request's own here, without a setting (hub_isolation_level).", nil],
        "connection_pool" => [:note, "its waiters are not served in order.",
                              "Fairlead::Pool takes its place: guides/fair-pool.md."]
      }.freeze

      # name => [the first version that lacks nothing, level, what those before do]
      DRIVERS = {
        "pg" => ["1.3", :hurts, "it blocks the thread of all requests of a worker while it waits."],
        "trilogy" => ["2.11", :note, "a connection that the server has closed may be handed out, since it shows no socket."]
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
          return Finding.new(level: :fine, what: "#{name} #{version} lets others run while it waits.") if fine

          Finding.new(level:, what: "#{name} #{version}: #{what}",
                      remedy: "Use #{name} #{first} or later: bundle update #{name}.")
        end
      end
    end
  end
end
