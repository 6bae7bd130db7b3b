# frozen_string_literal: true

require "open3"
require_relative "toolchain"

module Bench
  # The throwaway database server that bin/services keeps, for workloads that need one.
  module Database
    SERVICES = File.join(Toolchain::ROOT, "bin/services")
    private_constant :SERVICES

    module_function

    # Starts the services unless they run.
    #
    # @param name [String] as bin/services names it.
    # @return [String] for DATABASE_URL.
    def url(name)
      given = ENV["BENCH_DATABASE_URL"]
      return given if given

      Open3.capture2e(SERVICES, "start").then do |output, status|
        raise UsageError, "bin/services start failed:\n#{output}" unless status.success?
      end
      output, status = Open3.capture2(SERVICES, "url", name)
      raise UsageError, "bin/services knows no address of #{name}" unless status.success?

      output.strip
    end
  end
end
