# frozen_string_literal: true

module Bench
  module Servers
    # Ours, as it comes: nothing is set but the address and the number of workers. The setting is a git
    # revision, so that two states can be compared in one run: `--ours fairlead,fairlead:HEAD~1`.
    class Fairlead < Server
      def command(site)
        [
          File.join(build.folder, "exe/fairlead"), "--bind", "http://127.0.0.1:#{site.port}",
          "--workers", site.workers.to_s, "--environment", "production", site.app
        ]
      end

      # Before the bundle's own entry, which is the work tree.
      def environment(_site) = { "RUBYLIB" => File.join(build.folder, "lib") }

      def prepare(toolchain)
        @build = FairleadBuild.new(toolchain, setting).build
        { label.to_sym => @build.version }
      end

      private

      attr_reader :build
    end
  end
end
