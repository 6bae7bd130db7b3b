# frozen_string_literal: true

require "json"
require_relative "report/headlines"
require_relative "report/page"
require_relative "report/picture"

module Bench
  # What people read, made from bench/results: one page with all charts, the README's table, and its picture. Nothing
  # is measured here.
  class Report
    ROOT = File.expand_path("../..", __dir__)
    RESULTS = File.join(ROOT, "bench/results")
    PAGE = "bench/report/index.html"
    PICTURE = "bench/report/summary.svg"
    README = "README.md"
    MARKS = /(?<=<!-- made by bin\/bench report -->\n).*?(?=<!-- as far as here -->)/m
    private_constant :MARKS

    # @param folder [String] of results.
    def initialize(folder = RESULTS)
      @results = read(File.join(folder, "*.json"))
      @sweeps = read(File.join(folder, "sweeps/*.json"))
    end

    # @return [Hash{String => String}] what each file should hold.
    def files
      headlines = Headlines.new(@results)
      readme = File.read(File.join(ROOT, README))
      {
        PAGE => Page.new(@results, @sweeps).to_s, PICTURE => Picture.new(headlines).to_s,
        README => readme.sub(MARKS) { "\n#{headlines.to_markdown}\n" }
      }
    end

    # @return [Array<Overview::Row>] each load beside the best peer's.
    def overview = Page.new(@results).overview.rows

    # @return [Array<String>] those that are not what they should be.
    def outdated
      files.reject { |path, text| File.exist?(absolute(path)) && File.read(absolute(path)) == text }.keys
    end

    def write
      files.each { |path, text| File.write(absolute(path), text) }.keys
    end

    private

    def read(pattern) = Dir[pattern].sort.map { |path| JSON.parse(File.read(path)) }

    def absolute(path) = File.join(ROOT, path)
  end
end
