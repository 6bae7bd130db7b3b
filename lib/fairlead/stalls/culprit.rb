# frozen_string_literal: true

require "rbconfig"

module Fairlead
  class Stall
    # The frame that causes a stall: the first of the backtrace outside of Ruby's library, the framework and Fairlead.
    class Culprit
      FRAMEWORK = %w[
        actioncable actionmailbox actionmailer actionpack actiontext actionview activejob activemodel activerecord
        activestorage activesupport rails railties zeitwerk rack rack-session rackup i18n concurrent-ruby bundler
        async io-event console fiber-annotation fiber-local fiber-storage traces metrics fairlead fairlead-pool
      ].freeze
      OWN = File.expand_path("../..", __dir__)
      private_constant :FRAMEWORK, :OWN

      # @return [String, nil] "app/models/report.rb:12 in `render'"; nil: the backtrace is empty.
      attr_reader :at
      # @return [String, nil] "mysql2 0.5.6"
      attr_reader :gem

      # @param backtrace [Array<String>]
      def initialize(backtrace)
        frame = backtrace.find { |line| culprit?(line) } || backtrace.first or return
        gem = gem_of(frame)
        @gem = gem && "#{gem.name} #{gem.version}"
        @at = shorten(frame, gem)
      end

      # @return [Array<String>] without the server's frames beneath the app.
      def self.trim(backtrace)
        backtrace.take(backtrace.size - backtrace.reverse_each.take_while { |line| beneath?(line) }.size)
      end

      # @api private
      # @return [Array<Gem::Specification>] the deepest folder first: an app may be a gem, with others in its folder.
      def self.gems
        return @gems if @gems&.size == Gem.loaded_specs.size

        @gems = Gem.loaded_specs.values.sort_by { |spec| -spec.full_gem_path.size }
      end

      def self.beneath?(line)
        line.start_with?("#{OWN}/fairlead", "<internal:") || line.match?(%r{/gems/(async|io-event)-\d})
      end
      private_class_method :beneath?

      private

      def culprit?(line)
        return false if line.start_with?("#{OWN}/", "<internal:", *library)

        gem = gem_of(line)
        gem.nil? || !FRAMEWORK.include?(gem.name)
      end

      # Gems may be installed below Ruby's library.
      def library
        @library ||= RbConfig::CONFIG.values_at("rubylibdir", "rubyarchdir").compact.map { |folder| "#{folder}/" }
      end

      def gem_of(line)
        Culprit.gems.find { |spec| line.start_with?("#{spec.full_gem_path}/") }.then { |spec| spec unless spec && app?(spec) }
      end

      def app?(spec) = "#{Dir.pwd}/".start_with?("#{spec.full_gem_path}/")

      def shorten(line, gem)
        line = line.delete_prefix("#{gem ? gem.full_gem_path : Dir.pwd}/")
        line.sub(/:in /, " in ")
      end
    end
  end
end
