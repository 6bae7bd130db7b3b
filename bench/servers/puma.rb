# frozen_string_literal: true

module Bench
  module Servers
    # Puma in one process without a cluster's supervisor (with more workers: a cluster that preloads). The
    # setting is the number of threads; its own default is 5. With "low_latency" behind a plus its answers do not
    # wait until the client has confirmed the one before: that matters where requests are pipelined, and nowhere else. With
    # "io" further threads may serve requests that the app marks as waiting (`puma.mark_as_io_bound`).
    class Puma < Server
      DEFAULT_THREADS = 5
      IO_THREADS = 6_000
      private_constant :DEFAULT_THREADS, :IO_THREADS

      def command(site)
        [*gem_program("puma"), "--config", site.write("puma.rb", configuration(site)), "--silent", site.app]
      end

      # It compresses nothing itself.
      def environment(site) = site.compress ? { "DEFLATE" => "yes" } : {}

      # @return [Array<String>] what follows `ruby --yjit` where a proxy does TLS before it.
      def behind(site) = command(site.with(port: site.backend, tls: nil))

      private

      def configuration(site)
        threads, *extras = setting.to_s.split("+")
        threads = threads ? Integer(threads, 10) : DEFAULT_THREADS
        <<~RUBY
          # As many connections may wait as for the others: 10,000 come at once.
          bind "#{address(site)}backlog=4096#{"&low_latency=true" if extras.include?("low_latency")}"
          environment "production"
          workers #{site.workers > 1 ? site.workers : 0}
          #{"preload_app!" if site.workers > 1}
          # All threads from the start: none is begun while we measure.
          threads #{threads}, #{threads}#{"\nmax_io_threads #{IO_THREADS}" if extras.include?("io")}
          # No connection is closed after 999 requests: no other server does that.
          max_keep_alive Float::INFINITY#{"\nplugin :metrics\nmetrics_url \"tcp://127.0.0.1:#{site.metrics}\"" if site.metrics}
        RUBY
      end

      def address(site)
        site.tls ? "ssl://127.0.0.1:#{site.port}?cert=#{site.tls.certificate}&key=#{site.tls.key}&" : "tcp://127.0.0.1:#{site.port}?"
      end
    end
  end
end
