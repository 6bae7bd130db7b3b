# frozen_string_literal: true

require "prism"

module Fairlead
  class Doctor
    # Reads the app's code, without running it, for uses of connections, threads and process-wide state. Not of tasks, which run
    # in processes of their own.
    module Code
      FILES = "{app,lib,config}/**/*.rb"

      # kind => [level, what, remedy]
      KINDS = {
        pinned: [:hurts, "Code that keeps a database connection until the request ends, or until it checks it in",
                 "Write with_connection { |connection| … } around the queries."],
        fiber_local: [:note, "Thread.current[…] as state of a request: it is empty in each request and invisible to tasks that " \
                             "a request starts",
                      "Use ActiveSupport::CurrentAttributes. A client that is kept there is rebuilt for each request: put it " \
                      "into a pool (guides/fair-pool.md), or into a constant if threads may share it."],
        process: [:note, "Code that changes what all requests of a worker share: the working folder, ENV, the umask",
                  "Pass `chdir:`, `umask:` and variables to spawn, system or IO.popen, and use absolute paths. Dir.chdir { … } " \
                  "raises while another request is in such a block."]
      }.freeze
      private_constant :FILES, :KINDS

      def self.findings(folder)
        places = Hash.new { |hash, kind| hash[kind] = [] }
        Dir[FILES, base: folder].sort.each do |path|
          Prism.parse_file(File.join(folder, path)).value.accept(Visitor.new(path, places))
        end
        KINDS.filter_map do |kind, (level, what, remedy)|
          Finding.new(level:, what: "#{what}:", places: places[kind], remedy:) if places.key?(kind)
        end
      end

      # Collects the places in one file.
      class Visitor < Prism::Visitor
        def initialize(path, places)
          @path = path
          @places = places
          @nesting = [] # names of classes and modules
          super()
        end

        def visit_call_node(node)
          add(kind_of(node), node)
          super
        end

        # Thread.current[:name] ||= …, &&=, += and multiple assignment.
        %i[index_or_write index_and_write index_operator_write index_target].each do |name|
          define_method(:"visit_#{name}_node") do |node|
            add(:fiber_local, node) if current_thread?(node.receiver)
            super(node)
          end
        end

        %i[class module].each do |name|
          define_method(:"visit_#{name}_node") do |node|
            @nesting.push(node.constant_path.slice)
            super(node)
          ensure
            @nesting.pop
          end
        end

        private

        def add(kind, node)
          return if kind.nil? || (kind == :process && @path.start_with?("config/")) # it runs before anything else

          @places[kind] << "#{@path}:#{node.location.start_line}: #{node.slice.lines.first.strip[0, 80]}"
        end

        def kind_of(node)
          case node.name
          when :lease_connection then :pinned
          when :connection then :pinned if node.arguments.nil? && model?(node.receiver)
          when :checkout then :pinned if pool?(node.receiver)
          when :[]= then current_thread?(node.receiver) ? :fiber_local : (:process if environment?(node.receiver))
          when :chdir, :fchdir, :cd then :process if constant?(node.receiver, "Dir", "FileUtils")
          when :umask then :process if node.arguments && constant?(node.receiver, "File")
          when :with_unbundled_env, :with_original_env, :with_clean_env then :process if constant?(node.receiver, "Bundler")
          end
        end

        def constant?(node, *names) = !node.nil? && names.include?(node.slice.delete_prefix("::"))

        def environment?(node) = constant?(node, "ENV")

        def pool?(node) = node.is_a?(Prism::CallNode) && node.name == :connection_pool && model?(node.receiver)

        def current_thread?(node) = node.is_a?(Prism::CallNode) && node.slice.delete_prefix("::") == "Thread.current"

        # Faraday.connection is no database connection, and what a model defines itself is none either.
        def model?(receiver)
          case receiver
          when nil, Prism::SelfNode then active_record?(@nesting.join("::")) { |model| !model.method_defined?(:connection) }
          when Prism::ConstantReadNode, Prism::ConstantPathNode then active_record?(receiver.slice)
          else receiver.slice == "self.class" && active_record?(@nesting.join("::"))
          end
        end

        def active_record?(name)
          constant = Object.const_get(name)
          return @path.start_with?("app/models/") unless constant.is_a?(Class) # a concern
          return false if block_given? && !yield(constant)

          constant <= ::ActiveRecord::Base && constant.method(:connection).owner.name.start_with?("ActiveRecord")
        rescue NameError, LoadError
          false
        end
      end
      private_constant :Visitor
    end
  end
end
