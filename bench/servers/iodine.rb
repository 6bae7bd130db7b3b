# frozen_string_literal: true

module Bench
  module Servers
    # Iodine in one process. The setting is the number of threads.
    class Iodine < Server
      DEFAULT_THREADS = 1
      private_constant :DEFAULT_THREADS

      def command(site)
        [
          *gem_program("iodine"), "-b", "http://127.0.0.1:#{site.port}",
          "-w", site.workers.to_s, "-t", (setting || DEFAULT_THREADS).to_s, site.app
        ]
      end
    end
  end
end
