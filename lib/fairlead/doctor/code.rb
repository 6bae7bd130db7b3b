# frozen_string_literal: true

require "prism"

module Fairlead
  class Doctor
    # What the app's own code does with connections and threads. It is read, not run.
    module Code
      FOLDERS = %w[app lib config].freeze

      # kind => [level, what, remedy]
      KINDS = {
        pinned: [:hurts, "Code that keeps a database connection until the end of the request",
                 "Write with_connection { |connection| … } around the queries."],
        fiber_local: [:note, "Thread.current[…] as state of a request: it is fresh in each, and not seen by tasks that " \
                             "a request starts",
                      "ActiveSupport::CurrentAttributes says what is meant."],
        live: [:note, "ActionController::Live: each stream is a fiber, without a thread; `streams` bounds them",
               "Keep no connection meanwhile: with_connection { … } around each query."]
      }.freeze
      private_constant :FOLDERS, :KINDS

      # @return [Array<Finding>]
      def self.findings(folder)
        places = Hash.new { |hash, kind| hash[kind] = [] }
        Dir[File.join(folder, "{#{FOLDERS.join(",")}}/**/*.rb")].sort.each do |path|
          visitor = Visitor.new(path.delete_prefix("#{folder}/"), places)
          Prism.parse_file(path).value.accept(visitor)
        end
        KINDS.map do |kind, (level, what, remedy)|
          found = places[kind]
          next Finding.new(level: :fine, what: "None in the app's code: #{what[0].downcase}#{what[1..]}.") if found.empty?

          Finding.new(level:, what: "#{what}:", places: found, remedy:)
        end
      end

      # Notes the places in one file.
      class Visitor < Prism::Visitor
        def initialize(path, places)
          @path = path
          @places = places
          super()
        end

        def visit_call_node(node)
          kind = kind_of(node)
          @places[kind] << "#{@path}:#{node.location.start_line}: #{node.slice.lines.first.strip[0, 80]}" if kind
          super
        end

        private

        def kind_of(node)
          case node.name
          when :lease_connection then :pinned
          when :connection then :pinned if node.arguments.nil? && model?(node.receiver)
          when :[]= then :fiber_local if node.receiver.is_a?(Prism::CallNode) && node.receiver.slice == "Thread.current"
          when :include then :live if node.arguments&.slice == "ActionController::Live"
          end
        end

        # Faraday.connection is another thing.
        def model?(node)
          return @path.start_with?("app/models/") if node&.slice == "self.class"
          return false unless node.is_a?(Prism::ConstantReadNode) || node.is_a?(Prism::ConstantPathNode)

          constant = Object.const_get(node.slice)
          constant.is_a?(Class) && constant <= ::ActiveRecord::Base
        rescue NameError, LoadError
          false
        end
      end
      private_constant :Visitor
    end
  end
end
