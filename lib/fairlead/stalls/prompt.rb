# frozen_string_literal: true

require "rbconfig"

module Fairlead
  class Stall
    # Tells stalls from debugger prompts. A prompt holds up its own request; the debug gem (rdbg) also stops all other threads, so that
    # everything which ran at that moment seems to stall.
    module Prompt
      # Frames that wait for input at a prompt.
      FRAME = %r{/gems/(?:byebug|debug|irb|pry|pry-byebug|readline|readline-ext|reline)-\d|
                 \A#{Regexp.escape(RbConfig::CONFIG["rubylibdir"])}/(?:irb|readline|reline)[./]}x
      # Prepended to the debug gem's session. When its subsession (a prompt) ends, the other threads continue.
      module Session
        private

        def leave_subsession(...)
          super
        ensure
          Prompt.ended
        end
      end
      private_constant :FRAME, :Session

      class << self
        # @param began [Integer] when the stall began, on the core's clock.
        # @param backtrace [Array<String>]
        # @return [Boolean] whether a prompt has caused the stall.
        def caused?(began, backtrace)
          watch
          session = debugger
          (session && (session.in_subsession? || began <= @ended_at)) || backtrace.any?(FRAME)
        end

        # An app may load the debug gem late, and its first prompt may be over then.
        def watch
          return if @ended_at || debugger.nil?

          ended
          ::DEBUGGER__::Session.prepend(Session)
        end

        # @api private
        def ended = @ended_at = Clock.microseconds

        private

        def debugger = (::DEBUGGER__::SESSION if defined?(::DEBUGGER__::SESSION) && Compatibility.fits?(:debug))
      end
    end
  end
end
