# frozen_string_literal: true

require_relative "suite/claims"

module Fairlead
  # A set of database servers of one test file, beside those that all use. They go when its process ends; if that is killed, the next
  # run of bin/test clears them away.
  module OwnServices
    PROGRAM = File.expand_path("../bin/services", __dir__).freeze

    # @return [String] the folder, not made yet: the first start does. Under root it must be where the servers' own user can go.
    def self.folder(name)
      "/var/tmp/fairlead-services-#{name}-#{Process.pid}".freeze.tap do |folder|
        Suite::Claims.take(folder)
        Minitest.after_run do
          system({ "FAIRLEAD_SERVICES" => folder }, PROGRAM, "destroy", out: File::NULL) if File.exist?(folder)
          Suite::Claims.release(folder)
        end
      end
    end
  end
end
