# frozen_string_literal: true

module Bench
  module Servers
    # Itsi in one process with one thread. The setting "fibers" has it serve in fibers, with its own scheduler;
    # a number is the number of threads. With "patient" it keeps idle connections, which it closes after 1 s by default.
    class Itsi < Server
      SETTINGS = { "fibers" => "fiber_scheduler true", "patient" => "header_read_timeout 120.0" }.freeze
      private_constant :SETTINGS

      def command(site)
        [*gem_program("itsi"), "serve", "--config", site.write("Itsi.rb", configuration(site))]
      end

      private

      def configuration(site)
        threads = setting&.match?(/\A\d+\z/) ? setting : 1
        <<~RUBY
          bind "http://127.0.0.1:#{site.port}"
          workers #{site.workers}
          threads #{threads}
          #{SETTINGS[setting]}
          log_level :warn
          listen_backlog 4096
          # Its default of 30 refuses what is over with a 503.
          ruby_thread_request_backlog_size 20_000
          rackup_file "#{site.app}"
        RUBY
      end
    end
  end
end
