# frozen_string_literal: true

require "open3"
require_relative "toolchain"

module Bench
  # The throwaway database server that bin/services keeps, for workloads that need one.
  module Database
    SERVICES = File.join(Toolchain::ROOT, "bin/services")
    # What bin/services calls the server whose processes have this name.
    SERVICE_NAMES = { "postgres" => "postgresql", "mariadbd" => "mariadb" }.freeze
    private_constant :SERVICES, :SERVICE_NAMES

    SEED = File.expand_path("../apps/seed.rb", __dir__)
    private_constant :SEED

    module_function

    # Starts what a workload needs, fills its tables, and gives its servers the address.
    #
    # @return [Hash{Symbol => String}] the database's version.
    def prepare(workload, toolchain)
      return {} unless workload.database

      url = url(workload.database).sub(/\A\w+(?=:)/) { |scheme| workload.driver || scheme }
      workload.environment = workload.environment.merge("DATABASE_URL" => url)
      { database: toolchain.capture(*toolchain.ruby, SEED, variables: { "DATABASE_URL" => url }) }
    end

    # Starts the services unless they run; installs them where they are missing.
    #
    # @param name [String] of the database's processes.
    # @return [String] for DATABASE_URL.
    def url(name)
      given = ENV["BENCH_DATABASE_URL"]
      return given if given && name == "postgres"

      start
      output, status = Open3.capture2(SERVICES, "url", SERVICE_NAMES.fetch(name))
      raise UsageError, "bin/services knows no address of #{name}" unless status.success?

      output.strip
    end

    def start
      _, status = Open3.capture2e(SERVICES, "start")
      return if status.success?

      Toolchain.set_up
      output, status = Open3.capture2e(SERVICES, "start")
      raise UsageError, "bin/services start failed:\n#{output}" unless status.success?
    end
  end
end
