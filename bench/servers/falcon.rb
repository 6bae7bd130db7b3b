# frozen_string_literal: true

module Bench
  module Servers
    # Falcon, forked as it comes, with one process for each worker. `serve` is the command of its guide; its log
    # says nothing of requests unless asked.
    class Falcon < Server
      def command(site)
        [
          *gem_program("falcon"), "serve", "--bind", "http://127.0.0.1:#{site.port}",
          "--count", site.workers.to_s, "--config", site.app
        ]
      end

      def environment(_site) = { "CONSOLE_LEVEL" => "warn" }
    end
  end
end
