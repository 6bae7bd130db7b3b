# frozen_string_literal: true

module Bench
  module Servers
    # Falcon as its guide has it for production: `falcon host` with HTTP/1 alone, one forked process for each
    # worker. The setting "serve" is its command for development, which also looks for HTTP/2 on each
    # connection. With "limiter" falcon-limiter counts connections and long tasks (the app marks these with LongTask#start).
    # Both limits exceed what the load asks for, because an idle keep-alive connection occupies its place.
    class Falcon < Server
      LIMITED_CONNECTIONS = 1_024
      LONG_TASKS = 6_000
      private_constant :LIMITED_CONNECTIONS, :LONG_TASKS

      def command(site)
        falcon = gem_program("falcon")
        return [*falcon, "host", site.write("falcon.rb", configuration(site))] unless setting == "serve"

        [
          *falcon, "serve", "--bind", "http://127.0.0.1:#{site.port}",
          "--count", site.workers.to_s, "--config", site.app
        ]
      end

      def environment(_site) = { "CONSOLE_LEVEL" => "warn" }

      private

      def configuration(site)
        return limited_configuration(site) if setting == "limiter"

        <<~RUBY
          require "falcon/environment/server"
          require "falcon/environment/rackup"

          service "bench" do
            include Falcon::Environment::Server
            include Falcon::Environment::Rackup

            count #{site.workers}
            rackup_path "#{site.app}"
            endpoint do
              Async::HTTP::Endpoint.parse("http://127.0.0.1:#{site.port}")
                .with(protocol: Async::HTTP::Protocol::HTTP11)
            end
          end
        RUBY
      end

      def limited_configuration(site)
        <<~RUBY
          require "falcon/environment/server"
          require "falcon/environment/rackup"
          require "falcon/limiter/environment"
          require "falcon/limiter/long_task"

          service "bench" do
            include Falcon::Environment::Server
            include Falcon::Environment::Rackup
            include Falcon::Limiter::Environment

            count #{site.workers}
            rackup_path "#{site.app}"
            limiter_maximum_connections #{LIMITED_CONNECTIONS}
            limiter_maximum_long_tasks #{LONG_TASKS}
            endpoint do
              Async::HTTP::Endpoint.parse("http://127.0.0.1:#{site.port}")
                .with(protocol: Async::HTTP::Protocol::HTTP11, wrapper: limiter_wrapper)
            end
          end
        RUBY
      end
    end
  end
end
