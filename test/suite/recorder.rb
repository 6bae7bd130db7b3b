# frozen_string_literal: true

require "json"
require "minitest"

module Fairlead
  class Suite
    # Writes each test's beginning and result to a file as they come: what a process has done is known even if it dies.
    class Recorder < Minitest::AbstractReporter
      # @param path [String]
      def self.write_to(path)
        define_singleton_method(:minitest_plugin_init) { |_options| Minitest.reporter << new(File.open(path, "w")) }
        Minitest.register_plugin(self)
      end

      def initialize(file)
        super()
        @file = file
        @file.sync = true
      end

      def prerecord(test_class, name) = write(begun: "#{test_class}##{name}")

      def record(result)
        write(
          name: "#{result.class_name}##{result.name}", code: result.result_code, assertions: result.assertions,
          seconds: result.time, text: (result.to_s.scrub unless result.passed?), reason: (result.failure&.message&.scrub if result.skipped?)
        )
      end

      private

      def write(entry) = @file.puts(JSON.generate(entry))
    end
  end
end
