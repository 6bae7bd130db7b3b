# frozen_string_literal: true

require "json"
require "open3"
require "time"

module PoolBench
  # The tables of bench/results. Each part is measured apart from the others, and says itself when, and of which state.
  module Results
    ROOT = File.expand_path("../..", __dir__)
    FOLDER = File.join(ROOT, "bench/results")
    NAME = RUBY_ENGINE == "ruby" ? "fair-pool" : "fair-pool-#{RUBY_ENGINE}"
    SOURCES = %w[lib/fairlead/pool.rb lib/fairlead/pool].freeze
    private_constant :ROOT, :FOLDER, :NAME, :SOURCES

    module_function

    # @return [Hash{Symbol => String}] the last commit that touched the pool, and the Ruby it runs on.
    def origin
      commit = git("log", "-1", "--format=%h", "--abbrev=12", "--", *SOURCES)
      changed = " with changes" unless git("status", "--porcelain", "--", *SOURCES).empty?
      { date: Time.now.utc.iso8601, commit: "#{commit}#{changed}", ruby: RUBY_DESCRIPTION }
    end

    # Puts the table in the place of the part's last one.
    #
    # @return [String] the path.
    def save(table, folder = FOLDER)
      path = File.join(folder, "#{NAME}.json")
      tables = File.exist?(path) ? JSON.parse(File.read(path))["tables"].select { |found| found["key"] } : []
      tables = [*tables.reject { |found| found["key"] == table[:key] }, JSON.parse(JSON.generate(table))]
      document = {
        format: 1, workload: NAME, date: table[:date],
        title: "#{SIZE} connections, each held for #{HOLD} s, and more who want one",
        tables: tables.sort_by { |found| Parts::NAMES.index(found["key"]) }
      }
      File.write(path, "#{JSON.pretty_generate(document)}\n")
      path
    end

    def git(*arguments)
      output, status = Open3.capture2("git", "-C", ROOT, *arguments)
      status.success? ? output.strip : ""
    end
  end
end
