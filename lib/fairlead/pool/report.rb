# frozen_string_literal: true

module Fairlead
  class Pool
    # Describes who holds connections, as data and in words. Called without the pool's lock: backtraces take time.
    #
    # Holders are arrays of a fiber (or whatever else ActiveRecord calls the owner), its thread, if known, and the time
    # of the checkout, if known.
    #
    # @api private
    module Report
      SHOWN = 5 # holders in an error's message; the rest are counted
      # Where a holder is: a line of the app's.
      LIBRARIES = %r{/gems/|/lib/fairlead/|<internal:|/lib/ruby/}

      module_function

      # @param backtraces [Boolean] whether to add where each of them is now.
      # @return [Array<Hash>] the longest first: `{ fiber:, thread:, seconds:[, backtrace:] }`.
      def holders(holders, now, backtraces:)
        sort(holders).map do |fiber, thread, since|
          entry = { fiber: fiber, thread: thread, seconds: since ? now - since : 0.0 }
          entry[:backtrace] = backtrace(fiber, thread) if backtraces
          entry
        end
      end

      # @return [String] part of a sentence: "held by thread 0x10 (fiber 0x18) for 0.2 s, now at app.rb:3; …"
      def sentence(holders, now)
        return "nobody holds one" if holders.empty?

        shown = sort(holders).first(SHOWN).map { |fiber, thread, since| describe(fiber, thread, since, now) }
        shown << "and #{holders.size - SHOWN} more" if holders.size > SHOWN
        "held by #{shown.join("; ")}"
      end

      # @return [Array<String>]
      def backtrace(fiber, thread = nil)
        (fiber.backtrace if fiber.respond_to?(:backtrace)) || thread&.backtrace || []
      rescue ::StandardError
        []
      end

      def sort(holders) = holders.sort_by { |*, since| since || ::Float::INFINITY }

      def describe(fiber, thread, since, now)
        line = backtrace(fiber, thread).find { |one| !LIBRARIES.match?(one) }
        "#{name(fiber, thread)}#{" for #{format("%.3g", now - since)} s" if since}#{", now at #{line}" if line}"
      end

      def name(fiber, thread)
        own = format("%s 0x%x", fiber.class.name.downcase, fiber.object_id)
        return own unless thread

        "#{thread.name ? "thread #{thread.name.inspect}" : format("thread 0x%x", thread.object_id)} (#{own})"
      end
    end
  end
end
