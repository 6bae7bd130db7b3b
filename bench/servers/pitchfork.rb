# frozen_string_literal: true

module Bench
  module Servers
    # Pitchfork: a process for each request at a time, behind a proxy in real life, and without keep-alive. Beside the
    # others it is shown what one process does.
    class Pitchfork < Server
      def command(site)
        [*gem_program("pitchfork"), "-c", site.write("pitchfork.rb", configuration(site)), "-E", "production", site.app]
      end

      private

      def configuration(site)
        <<~RUBY
          listen "127.0.0.1:#{site.port}", backlog: 4096
          worker_processes #{site.workers}
          logger Logger.new($stderr, level: :warn)
        RUBY
      end
    end
  end
end
