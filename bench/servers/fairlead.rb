# frozen_string_literal: true

module Bench
  module Servers
    # Ours, as it comes: nothing is set but the address and the number of workers, and where metrics are read if they are. The
    # setting is a git revision, so that two states can be compared in one run: `--ours fairlead,fairlead:HEAD~1`.
    class Fairlead < Server
      def command(site)
        [
          File.join(build.folder, "exe/fairlead"), "--bind", site.url, *certificate(site.tls), *files(site.public),
          *("--compress" if site.compress), "--workers", site.workers.to_s, "--environment", "production", site.app
        ]
      end

      # Before the bundle's own entry, which is the work tree.
      def environment(site)
        metrics = { "FAIRLEAD_METRICS" => "http://127.0.0.1:#{site.metrics}" } if site.metrics
        { "RUBYLIB" => File.join(build.folder, "lib"), **metrics.to_h }
      end

      def prepare(toolchain)
        @build = FairleadBuild.new(toolchain, setting).build
        { label.to_sym => @build.version }
      end

      private

      attr_reader :build

      def files(folder) = folder ? ["--public-files", folder] : []

      def certificate(tls) = tls ? ["--certificate", tls.certificate, "--certificate-key", tls.key] : []
    end
  end
end
