# frozen_string_literal: true

module Bench
  module Servers
    # Itsi in one process with one thread. The setting "fibers" has it serve in fibers, with its own scheduler;
    # a number is the number of threads. With "patient" it keeps idle connections, which it closes after 1 s by default. It does TLS, HTTP/2
    # and compression, and serves files before the app.
    class Itsi < Server
      SETTINGS = { "fibers" => "fiber_scheduler true", "patient" => "header_read_timeout 120.0" }.freeze
      # Its zstd at the default level hardly makes anything smaller, and by default it compresses images, too.
      COMPRESSION = 'compress algorithms: %w[gzip], mime_types: ["text", "application", { "other" => "image/svg+xml" }]'
      private_constant :SETTINGS, :COMPRESSION

      def command(site)
        [*gem_program("itsi"), "serve", "--config", site.write("Itsi.rb", configuration(site))]
      end

      private

      def configuration(site)
        threads = setting&.match?(/\A\d+\z/) ? setting : 1
        <<~RUBY
          bind "#{site.url}#{certificate(site.tls) if site.tls}"
          workers #{site.workers}
          threads #{threads}
          #{[SETTINGS[setting], (files(site.public) if site.public), (COMPRESSION if site.compress)].compact.join("\n")}
          log_level :warn
          listen_backlog 4096
          # Its default of 30 refuses what is over with a 503.
          ruby_thread_request_backlog_size 20_000
          rackup_file "#{site.app}"
        RUBY
      end

      def certificate(tls) = "?cert=#{tls.certificate}&key=#{tls.key}"

      # What is not there goes to the app.
      def files(folder) = %(static_assets root_dir: "#{folder}", not_found_behavior: "fallthrough")
    end
  end
end
