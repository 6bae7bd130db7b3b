# frozen_string_literal: true

require_relative "puma"

module Bench
  module Servers
    # Debian's nginx with one worker process, which runs no app: it answers by itself, or serves the files of the workload, and shows what a
    # server without Ruby does. The setting "puma" puts it before Puma, over kept connections. One worker of it uses one core.
    class Nginx < Server
      DESCRIPTORS = 30_000
      PROXY = 'proxy_pass http://puma; proxy_http_version 1.1; proxy_set_header Connection "";'
      COMPRESSION = "gzip on; gzip_vary on; gzip_proxied any; gzip_types text/css text/javascript image/svg+xml; gzip_static on;"
      private_constant :DESCRIPTORS, :PROXY, :COMPRESSION

      def ruby? = false

      def command(site)
        nginx = ["nginx", "-e", "stderr", "-p", site.folder, "-c", site.write("nginx.conf", configuration(site))]
        return nginx unless setting == "puma"

        # Puma lies in the process group that ends with nginx.
        ["sh", "-c", "ruby --yjit #{Puma.new("puma", nil).behind(site).join(" ")} & exec #{nginx.join(" ")}"]
      end

      def prepare(_toolchain) = { label.to_sym => Machine.version("nginx", "-v") }

      private

      def configuration(site)
        <<~NGINX
          daemon off;
          user root;
          pid nginx.pid;
          worker_processes #{site.workers};
          worker_rlimit_nofile #{DESCRIPTORS};
          events { worker_connections #{DESCRIPTORS}; }
          http {
            access_log off;
            keepalive_requests 1000000000;
            sendfile on;
            tcp_nopush on;
            open_file_cache max=100;
            #{%w[client_body proxy fastcgi uwsgi scgi].map { |name| "#{name}_temp_path temporary-#{name};" }.join("\n  ")}
            default_type text/plain;
            #{COMPRESSION if site.compress}
            #{"upstream puma { server 127.0.0.1:#{site.backend}; keepalive 64; }" if setting == "puma"}
            server {
              listen 127.0.0.1:#{site.port} #{"ssl http2 " if site.tls}backlog=4096;
              #{certificate(site.tls) if site.tls}
              #{locations(site)}
            }
          }
        NGINX
      end

      # Clients resume their sessions. TLS 1.3 as with the other servers: nginx before 1.23.4 leaves it out by itself, and a session of
      # TLS 1.2 is resumed without a key exchange, for half of the work.
      def certificate(tls)
        "ssl_certificate #{tls.certificate}; ssl_certificate_key #{tls.key}; ssl_session_cache shared:sessions:10m; " \
          "ssl_protocols TLSv1.2 TLSv1.3;"
      end

      # Files before the app. Where none is asked for by name, nginx alone has a page.
      def locations(site)
        return app(site) if setting == "puma"
        return 'location / { return 200 "Hello World"; }' unless site.public

        page = "root #{File.dirname(PublicFiles.page)}; try_files /#{File.basename(PublicFiles.page)} =404;"
        "location / { root #{site.public}; } location = / { #{page} }"
      end

      def app(site)
        return "location / { #{PROXY} }" unless site.public

        "location / { root #{site.public}; try_files $uri @app; } location @app { #{PROXY} }"
      end
    end
  end
end
