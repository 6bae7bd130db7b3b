# frozen_string_literal: true

# Finds what would hurt an app under fibers.
# Called by cli.
# Calls active_record and integrations.

require_relative "parts"

module Fairlead
  # `fairlead doctor`: lists what would hurt the loaded app under fibers, each with its fix.
  class Doctor
    # @!attribute level [Symbol] :hurts, :note (good to know), or :fine.
    # @!attribute what [String] one sentence.
    # @!attribute places [Array<String>] "app/models/item.rb:12".
    # @!attribute remedy [String, nil]
    Finding = Data.define(:level, :what, :places, :remedy) do
      def initialize(level:, what:, places: [], remedy: nil) = super
    end

    MARKS = { hurts: "✗", note: "–", fine: "✓" }.freeze
    # Places shown per finding.
    SHOWN = 8
    private_constant :MARKS, :SHOWN

    # @param configuration [Configuration]
    # @param app_folder [String]
    def initialize(configuration, app_folder: Dir.pwd)
      @configuration = configuration
      @folder = app_folder
    end

    # The app must be loaded.
    #
    # @return [Array<Finding>] those that hurt first
    def findings
      found = Isolated.findings + Databases.findings(@configuration) + Gems.findings + Code.findings(@folder)
      found.sort_by.with_index { |finding, index| [MARKS.keys.index(finding.level), index] }
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

    def show(finding, output)
      output.puts "#{MARKS[finding.level]} #{finding.what}"
      finding.places.first(SHOWN).each { |place| output.puts "    #{place}" }
      output.puts "    and #{finding.places.size - SHOWN} more" if finding.places.size > SHOWN
      output.puts "    → #{finding.remedy}" if finding.remedy
    end

    # Checks that state is kept by fiber.
    module Isolated
      def self.findings
        return [] unless defined?(::ActiveSupport::IsolatedExecutionState)
        return [Finding.new(level: :fine, what: "State is kept by fiber (isolation_level :fiber).")] unless
          Isolation.overruled?

        [Finding.new(
          level: :hurts,
          what: "config.active_support.isolation_level is :thread, which would mix up requests. Fairlead uses :fiber " \
                "while it serves.",
          remedy: "Remove that line from the app's configuration, or set :fiber, so that tests run like the app."
        )]
      end
    end
  end
end

require_relative "doctor/code"
require_relative "doctor/databases"
require_relative "doctor/gems"
