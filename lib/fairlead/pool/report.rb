# frozen_string_literal: true

module Fairlead
  class Pool
    # Who holds connections, as data and in words. Called without the pool's lock: a backtrace takes its time.
    module Report
      LIBRARY = ::File.expand_path("..", __dir__).freeze
      SHOWN = 8 # holders in an error's message; the rest are counted

      module_function

      # @param holders [Array<Array(Fiber, Thread, Float)>] fiber, thread and since when.
      # @param backtraces [Boolean] whether to look where each of them is now.
      # @return [Array<Hash>] the longest first: `{ fiber:, thread:, seconds:[, backtrace:] }`.
      def holders(holders, now, backtraces:)
        holders.sort_by(&:last).map do |fiber, thread, since|
          entry = { fiber: fiber, thread: thread, seconds: now - since }
          entry[:backtrace] = backtrace(fiber, thread) if backtraces
          entry
        end
      end

      # @return [String] one sentence.
      def sentence(holders, now)
        return "nobody holds one" if holders.empty?

        list = holders(holders.sort_by(&:last).first(SHOWN), now, backtraces: true).map do |holder|
          where = holder[:backtrace].find { |line| !line.start_with?(LIBRARY, "<internal:") }
          "#{name(holder)} for #{format("%.3g", holder[:seconds])} s#{", now at #{where}" if where}"
        end
        list << "and #{holders.size - SHOWN} more" if holders.size > SHOWN
        "held by #{list.join("; ")}"
      end

      def name(holder)
        thread = holder[:thread]
        fiber = holder[:fiber]
        "#{thread.name ? "thread #{thread.name.inspect}" : format("thread 0x%x", thread.object_id)}" \
          "#{format(" (fiber 0x%x)", fiber.object_id)}"
      end

      def backtrace(fiber, thread)
        trace = fiber.backtrace if fiber.respond_to?(:backtrace)
        trace || thread.backtrace || []
      rescue ::StandardError
        []
      end
    end
    private_constant :Report
  end
end
