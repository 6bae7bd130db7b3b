# frozen_string_literal: true

module Bench
  module Servers
    # Falcon as its guide has it for production: `falcon host` with HTTP/1 alone, one forked process for each
    # worker; over TLS with HTTP/2, too. The setting "serve" is its command for development, which also looks for HTTP/2 on each
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

      def environment(site) = { "CONSOLE_LEVEL" => "warn", **(site.metrics ? { "APP_METRICS" => "yes" } : {}) }

      # It has none of its own: the app shows them.
      def metrics(site) = URI("http://127.0.0.1:#{site.port}/metrics")

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
            #{site.tls ? encrypted_endpoint(site) : endpoint(site)}
          end
        RUBY
      end

      def endpoint(site)
        <<~RUBY
          endpoint do
            Async::HTTP::Endpoint.parse("#{site.url}").with(protocol: Async::HTTP::Protocol::HTTP11)
          end
        RUBY
      end

      # Its own environment for TLS reads RSA keys alone.
      def encrypted_endpoint(site)
        <<~RUBY
          endpoint do
            context = OpenSSL::SSL::SSLContext.new
            context.add_certificate(
              OpenSSL::X509::Certificate.new(File.read("#{site.tls.certificate}")), OpenSSL::PKey.read(File.read("#{site.tls.key}"))
            )
            context.alpn_select_cb = ->(protocols) { (%w[h2 http/1.1] & protocols).first }
            context.session_id_context = "falcon"
            Async::HTTP::Endpoint.parse("#{site.url}", ssl_context: context)
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
