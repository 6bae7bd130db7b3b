# frozen_string_literal: true

module Fairlead
  class Suite
    # A file of Ruby tests.
    TestFile = Struct.new(:root, :name, :needs, :timing) do
      # @return [Array<TestFile>]
      def self.all(root)
        Dir.glob("{test,bench}/**/*_test.rb", base: root).map do |name|
          text = File.read(File.join(root, name))
          new(root, name, text.scan(/^ *needs (:.*)$/).join.scan(/:(\w+)/).flatten.map(&:to_sym), text.match?(/^ *timing\b/))
        end
      end

      def timing? = timing
      def alone? = needs.include?(:machine)
      def benchmark? = name.start_with?("bench/")
      # Seconds where nothing has been measured: an unknown file is begun before the short ones.
      def guess = 10
      def limit = Suite.limit(self)

      def final? = false

      # In a process of its own: {Minitest.autorun} runs the tests when it exits.
      #
      # @param only [String, nil] one test, as "Class#method".
      def run(records, timing:, only: nil)
        ENV["FAIRLEAD_TIMING"] = timing ? "only" : "no"
        ARGV.replace(only ? ["--name", "/\\A#{Regexp.escape(only)}\\z/"] : [])
        require "minitest/autorun"
        require_relative "recorder"
        Recorder.write_to(records)
        path = File.join(root, name)
        load path
        # Tests that it requires of another file run with that one.
        Minitest::Runnable.runnables.select! { |tests| tests.name.nil? || Object.const_source_location(tests.name)&.first == path }
      end
    end
  end
end
