# frozen_string_literal: true

require "rbconfig"

module Fairlead
  class Stall
    # Whether a stall is somebody at a debugger's prompt. A prompt keeps its own request; the debug gem (rdbg) stops all other
    # threads too, so that whatever ran just then seems to stall.
    module Prompt
      # Frames of those who read a prompt.
      FRAME = %r{/gems/(?:byebug|debug|irb|pry|pry-byebug|readline|readline-ext|reline)-\d|
                 \A#{Regexp.escape(RbConfig::CONFIG["rubylibdir"])}/(?:irb|readline|reline)[./]}x
      # Of the debug gem's session: it has ended what it calls a subsession, and others go on.
      module Session
        private

        def leave_subsession(...)
          super
        ensure
          Prompt.left
        end
      end
      private_constant :FRAME, :Session

      class << self
        # @param began [Integer] when the stall began, on the core's clock.
        # @param backtrace [Array<String>]
        def kept?(began, backtrace)
          watch
          session = debugger
          (session && (session.in_subsession? || began <= @left)) || backtrace.any?(FRAME)
        end

        # The debug gem is loaded when it is asked for: then it may have had its first prompt already.
        def watch
          return if @left || debugger.nil?

          left
          ::DEBUGGER__::Session.prepend(Session)
        end

        # @api private
        def left = @left = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)

        private

        def debugger = (::DEBUGGER__::SESSION if defined?(::DEBUGGER__::SESSION))
      end
    end
  end
end
