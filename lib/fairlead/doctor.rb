# frozen_string_literal: true

# Finds what would hurt an app under fibers.
# Called by cli.
# Calls active_record and configuration.

module Fairlead
  # `fairlead doctor`: lists what would hurt the loaded app under fibers, each with its fix.
  class Doctor
    # @!attribute level [Symbol] :hurts or :note (good to know).
    # @!attribute what [String] one sentence.
    # @!attribute places [Array<String>] "app/models/item.rb:12".
    # @!attribute remedy [String, nil]
    Finding = Data.define(:level, :what, :places, :remedy) do
      def initialize(level:, what:, places: [], remedy: nil) = super
    end

    MARKS = { hurts: "✗", note: "–" }.freeze
    # Places shown per finding.
    SHOWN = 8
    private_constant :MARKS, :SHOWN

    def initialize(configuration)
      @configuration = configuration
    end

    # The app must be loaded.
    #
    # @return [Array<Finding>] those that hurt first
    def findings
      found = Databases.findings(@configuration) + Gems.findings + Code.findings(Dir.pwd) + puma
      found.partition { |finding| finding.level == :hurts }.flatten
    end

    # @return [Integer] the exit status: 1 if anything would hurt.
    def report(output)
      found = findings
      hurting = found.count { |finding| finding.level == :hurts }
      output.puts "#{hurting.zero? ? "Nothing would hurt" : "#{hurting} of these would hurt"} in the environment " \
        "#{@configuration.environment}.", ""
      found.each { |finding| show(finding, output) }
      hurting.zero? ? 0 : 1
    end

    private

    def puma
      Configuration::PumaFile.all(@configuration).flat_map do |file|
        file.losses.map do |loss|
          Finding.new(level: :hurts, what: "#{file.path}: #{loss.what} has no effect, since Fairlead does not read that file:",
                      places: loss.lines.map { |line| "#{file.path}:#{line}" }, remedy: loss.remedy)
        end
      end
    end

    def show(finding, output)
      output.puts "#{MARKS[finding.level]} #{finding.what}"
      finding.places.first(SHOWN).each { |place| output.puts "    #{place}" }
      output.puts "    and #{finding.places.size - SHOWN} more" if finding.places.size > SHOWN
      output.puts "    → #{finding.remedy}" if finding.remedy
    end
  end
end

require_relative "doctor/code"
require_relative "doctor/databases"
require_relative "doctor/gems"
