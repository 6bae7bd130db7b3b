# frozen_string_literal: true

module Fairlead
  # The threads that the app has started while it was loaded: a fork leaves all of them behind.
  module BootThreads
    # Which a fork does not harm: Puma and Rails agree on the first name, and Ruby's libraries start theirs again.
    HARMLESS = [:fork_safe, :"\0__detached_thread__"].freeze
    private_constant :HARMLESS

    class << self
      # Called before the first fork.
      #
      # @return [void]
      def report
        threads = left_behind
        return if threads.empty?

        Log.say "The app has started #{threads.one? ? "a thread" : "#{threads.size} threads"} while it was loaded, and the workers " \
                "are forked without #{threads.one? ? "it" : "them"}:\n#{threads.map { |thread| "  #{describe(thread)}\n" }.join}" \
                "Start such threads in the hook after_fork (also known as before_worker_boot), or set preload to false. " \
                "One that starts again by itself sets its thread variable :fork_safe to true."
      end

      private

      def left_behind
        Thread.list.reject do |thread|
          thread == Thread.current || thread == Thread.main || thread.is_a?(Process::Waiter) ||
            thread.name.to_s.start_with?("fairlead", "Timeout") || HARMLESS.any? { |name| thread.thread_variable_get(name) }
        end
      end

      def describe(thread) = [thread.inspect, thread.backtrace&.first].compact.join(", now at ")
    end
  end
end
