# frozen_string_literal: true

require "ripper"

module Fairlead
  class Configuration
    # What an app's configuration of Puma does that is lost, since Fairlead does not run that file: it is only parsed.
    class PumaFile
      # @!attribute lines [Array<Integer>]
      # @!attribute what [String] "`plugin :solid_queue`"
      # @!attribute remedy [String] what to write instead, as a sentence.
      Loss = Data.define(:lines, :what, :remedy)

      SAME = "Write it into config/fairlead.rb."
      NONE = "Fairlead has no such hook: write before_fork { … }, which runs once, or after_fork { |index| … } into config/fairlead.rb."
      # Words of Puma whose loss an app notices.
      WORDS = {
        **[*HOOKS.keys, *ALIASES.keys].to_h { |word| [word, SAME] },
        **%i[
          before_worker_fork on_worker_fork after_worker_fork before_refork on_refork after_refork before_thread_start on_thread_start
          on_booted after_booted
        ].to_h { |word| [word, NONE] },
        **%i[before_thread_exit on_thread_exit after_worker_shutdown after_stopped on_stopped].to_h do |word|
          [word, "Fairlead has no such hook: write before_worker_exit { |index| … } into config/fairlead.rb."]
        end,
        **Script::ELSEWHERE.slice(:ssl_bind, :lowlevel_error_handler, :set_remote_address, :stdout_redirect, :http_content_length_limit),
        **%i[rackup early_hints port workers].to_h { |word| [word, SAME] },
        bind: "Write `bind \"http://…\"` or `bind \"unix:…\"` into config/fairlead.rb.",
        app: "Move the app to config.ru.", out_of_band: "Fairlead has no such hook."
      }.freeze
      # What is written out in them is lost; what the environment says, Fairlead takes from there itself.
      WRITTEN_OUT = %i[bind port rackup workers].freeze
      # Options that stand for words of Puma.
      OPTIONS = { port: :bind, ssl_bind: :bind, stdout_redirect: :log, http_content_length_limit: :body_size,
                  set_remote_address: :trusted_proxies }.freeze
      # Methods of Ruby whose call is code; others without a receiver are settings.
      CALLS = %i[load at_exit trap spawn system fork].freeze
      CODE = "Put it into config/initializers, or into config/fairlead.rb, and remove it here."
      # Blocks of hooks that only do what Fairlead does itself: let no connection of ActiveRecord pass a fork.
      CONNECTIONS = %w[
        ActiveRecord ActiveSupport Base on_load establish_connection connection connection_pool connection_handler disconnect!
        clear_all_connections! clear_active_connections! flush_idle_connections! defined?
      ].freeze
      private_constant :SAME, :NONE, :WORDS, :WRITTEN_OUT, :OPTIONS, :CALLS, :CODE, :CONNECTIONS

      # @return [Array<PumaFile>] that of the current folder, if there is one.
      def self.all(configuration)
        path = ["config/puma/#{configuration.environment}.rb", "config/puma.rb"].find { |name| ::File.file?(name) }
        path ? [new(path, configuration)] : []
      end

      # @return [String]
      attr_reader :path

      def initialize(path, configuration)
        @path = path
        @configuration = configuration
        @environment = { **ENV, "RAILS_ENV" => configuration.environment, "RACK_ENV" => configuration.environment }
      end

      # @return [Array<Loss>]
      def losses
        @losses = []
        @code = []
        @variables = {}
        text = ::File.read(@path)
        @lines = text.lines
        statements(Ripper.sexp(text)&.at(1))
        @losses << Loss.new(lines: @code, what: "code", remedy: CODE) if @code.any?
        @losses
      rescue StandardError # a strange file must not keep a server from serving
        []
      end

      private

      def statements(nodes) = nodes&.each { |node| statement(node) }

      def statement(node)
        case node.first
        when :if_mod, :unless_mod then statement(node[2]) if taken?(node[1], node.first == :if_mod)
        when :if, :elsif, :unless then branches(node)
        when :else then statements(node[1])
        when :assign, :opassign then assignment(node)
        when :case then statement(node[2])
        when :when then [statements(node[2]), (statement(node[3]) if node[3])]
        when :begin then statements(node[1][1])
        else call(node)
        end
      end

      def branches(node)
        positive = node.first != :unless
        statements(node[2]) if taken?(node[1], positive)
        statement(node[3]) if node[3] && taken?(node[1], !positive)
      end

      # @return [Boolean] whether a condition holds, or may hold.
      def taken?(condition, positive) = catch(:unknown) { value(condition) ? positive : !positive } != false

      # A local variable is nobody else's.
      def assignment(node)
        target = node[1]
        return @variables[target[1][1]] = node.last if target[0] == :var_field && target[1][0] == :@ident

        code(node) unless %w[$stdout $stderr STDOUT STDERR].include?(tokens(target).first)
      end

      def call(node)
        block = node[2] if node.first == :method_add_block
        called = block ? node[1] : node
        called = called[1] if called.first == :method_add_arg
        case called.first
        when :command, :fcall, :vcall then setting(called[1][1].to_sym, node, block)
        when :call, :command_call then code(node) unless tokens(called).first == "ENV"
        end
      end

      def setting(word, node, block)
        return inner(block) if %i[single cluster].include?(word) && block
        return plugin(node) if word == :plugin
        return code(node) if CALLS.include?(word)
        return if !WORDS.key?(word) || set?(word) || (block && needless?(block)) || (WRITTEN_OUT.include?(word) && !literal?(node))

        lose("`#{word}`", WORDS[word], node)
      end

      def inner(block)
        body = block[2]
        statements(body.first == :bodystmt ? body[1] : body)
      end

      def plugin(node)
        name = tokens(node)[1] || node.flatten.each_cons(2).to_a.assoc(:@tstring_content)&.last
        return if name == "tmp_restart" || (name == "solid_queue" && @configuration.solid_queue != "off")

        remedy = 'Write `solid_queue "fork"` into config/fairlead.rb.' if name == "solid_queue"
        lose("`plugin :#{name}`", remedy || "Fairlead has no plugins: start in after_fork { … } or as a process what it starts.", node)
      end

      def set?(word)
        return @configuration.hooked?(word) if HOOKS.key?(word) || ALIASES.key?(word)

        option = OPTIONS.fetch(word, word)
        TABLE.key?(option) && @configuration.origin(option) != :default
      end

      def literal?(node) = node.flatten.intersect?(%i[@int @tstring_content]) && !tokens(node).include?("ENV")

      def needless?(block)
        names = tokens(block[2])
        names.empty? || ((names - CONNECTIONS - %w[active_record]).empty? && names.include?("ActiveRecord"))
      end

      # @return [Array<String>] names in their order.
      def tokens(node)
        return [] unless node.is_a?(Array)
        return [node[1]] if %i[@ident @const @gvar @ivar].include?(node.first)

        node.flat_map { |part| tokens(part) }
      end

      # What config/fairlead.rb has word for word is not lost.
      def code(node)
        number = line(node) or return
        return if @configuration.file && ::File.read(@configuration.file).include?(@lines[number - 1].strip)

        @code << number
      end

      def lose(what, remedy, node) = @losses << Loss.new(lines: [line(node)], what:, remedy:)

      # @return [Integer, nil] the line of a node's first token.
      def line(node)
        return unless node.is_a?(Array)
        return node[2][0] if node.first.is_a?(Symbol) && node.first.start_with?("@")

        node.each { |part| (found = line(part)) && (return found) }
        nil
      end

      # The value of an expression of strings and the environment.
      def value(node)
        case node
        in [:paren, [inner]] then value(inner)
        in [:string_literal, [:string_content]] then ""
        in [:string_literal, [:string_content, [:@tstring_content, text, _]]] then text
        in [:@int, digits, _] then digits.to_i
        in [:var_ref, [:@kw, "true" | "false" | "nil" => word, _]] then { "true" => true, "false" => false }[word]
        in [:var_ref, [:@ident, name, _]] if @variables.key?(name) then value(@variables[name])
        in [:aref, [:var_ref, [:@const, "ENV", _]], [:args_add_block, [name], _]] then @environment[value(name)]
        in [:method_add_arg, [:call, [:var_ref, [:@const, "ENV", _]], _, [:@ident, "fetch", _]],
            [:arg_paren, [:args_add_block, [name, other], _]]]
          @environment.fetch(value(name)) { value(other) }
        in [:method_add_block, [:method_add_arg, [:call, [:var_ref, [:@const, "ENV", _]], _, [:@ident, "fetch", _]],
                                [:arg_paren, [:args_add_block, [name], _]]], [:brace_block, nil, [other]]]
          @environment.fetch(value(name)) { value(other) }
        in [:unary, :!, other] then !value(other)
        in [:binary, left, :==, right] then value(left) == value(right)
        in [:binary, left, :!=, right] then value(left) != value(right)
        in [:binary, left, :"&&" | :and, right] then value(left) && value(right)
        in [:binary, left, :"||" | :or, right] then value(left) || value(right)
        else throw :unknown
        end
      end
    end
  end
end
