# frozen_string_literal: true

module Bench
  module Servers
    # Agoo through its Rack handler, silent. The setting is the number of threads that call the app.
    class Agoo < Server
      DEFAULT_THREADS = 1
      private_constant :DEFAULT_THREADS

      def command(site)
        ["-S", "bundle", "exec", "ruby", site.write("agoo.rb", script(site))]
      end

      private

      # Its own command reads no config.ru, and logs each start.
      def script(site)
        <<~RUBY
          require "rack"
          require "agoo"
          Agoo::Log.configure(console: true, classic: true, states: { INFO: false, DEBUG: false, request: false })
          Agoo::Server.init(
            #{site.port}, ".", bind: ["http://127.0.0.1:#{site.port}"],
            thread_count: #{setting || DEFAULT_THREADS}, worker_count: #{site.workers},
            # Its default of 0.1 s is how long one request in ten waits under load, though more are there.
            poll_timeout: 0.001
          )
          app = Rack::Builder.parse_file("#{site.app}")
          app = app.first if app.is_a?(Array)
          Agoo::Server.handle_not_found(app)
          Agoo::Server.start
          sleep
        RUBY
      end
    end
  end
end
