# frozen_string_literal: true

require "fileutils"
require "json"
require_relative "toolchain"

module Bench
  # What a call that ended early has left of a workload: all runs of the visits it made. The next one goes on from
  # there, if it is to measure the same in the same way; else what was left is void.
  class Unfinished
    FOLDER = File.join(Toolchain::WORK, "unfinished")
    private_constant :FOLDER

    # @param name [String] of the workload.
    # @param identity [Hash] what must be equal for runs to be compared with each other.
    def initialize(name, identity, folder: FOLDER)
      @path = File.join(folder, "#{name}.json")
      @identity = JSON.parse(JSON.generate(identity))
    end

    # @return [Integer, nil] the seed that the order of the visits came from.
    def seed = found&.fetch("seed")

    # @return [Float] seconds spent on what is there.
    def took = found ? found["took"] : 0.0

    # @return [Hash{String => Array<Hash>}] as {Runner#run} returns them; empty where there is nothing to go on from.
    def runs = found ? found["runs"].transform_values { |runs| runs.map { |run| run.transform_keys(&:to_sym) } } : {}

    def keep(runs, seed:, took:)
      FileUtils.mkdir_p(File.dirname(@path))
      # Whoever is interrupted while writing has still what was there before.
      File.write("#{@path}.new", JSON.generate(identity: @identity, seed:, took:, runs:))
      File.rename("#{@path}.new", @path)
    end

    def forget = FileUtils.rm_f(@path)

    private

    def found
      return @found if defined?(@found)

      left = JSON.parse(File.read(@path))
      @found = left["identity"] == @identity ? left : nil
    rescue Errno::ENOENT, JSON::ParserError
      @found = nil
    end
  end
end
