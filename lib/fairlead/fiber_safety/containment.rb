# frozen_string_literal: true

require "async"
require_relative "scheduled_call"
require_relative "semaphores"
require_relative "thread_parent"

module Fairlead
  # An exception of an app ends the task or the request that raised it, and nothing else. In Async, an exception that is no
  # StandardError (NotImplementedError, `exit`, SystemStackError) ends the loop, and with it every request of its thread;
  # `Thread.exit` would end the thread.
  module Containment
    # Prepended to Async::Task, for tasks in a scheduler of the server's.
    module Tasks
      # The scheduler of another thread cancels its tasks itself: Async would raise in a fiber of it from here, in vain, again and again.
      def cancel(...)
        scheduler = root
        return super if !scheduler.is_a?(ServingScheduler) || scheduler.equal?(::Fiber.scheduler) || current?

        scheduler.unblock(nil, ScheduledCall.new { cancel(...) })
      end

      private

      def schedule
        return super unless (::Fiber.scheduler || reactor).is_a?(ServingScheduler)

        super do
          ended = false
          value = yield
          ended = true
          value
        rescue ::Async::Cancel, ::StandardError
          ended = true
          raise
        rescue ::Exception => error
          ended = true
          Containment.report(self, error)
          failed!(error)
        ensure
          unless ended
            ::Console.error(self, "The fiber of a task has been killed.")
            cancelled!(nil)
          end
        end
      end
    end

    # Prepended to Thread. In a request, the fiber is what the app takes for its thread. An exception that another thread raises in
    # a reactor's thread would arrive in whichever request computes. It is for the one that has started that other thread ({ThreadParent}).
    module Threads
      def raise(*arguments, **options)
        return super unless fairlead_serves && !arguments.first.is_a?(Timeouts::Expiry)
        return ::Kernel.raise(*arguments, **options) if equal?(::Thread.current)

        error = arguments.first
        error = ::RuntimeError.new(error || "unhandled exception") unless error.respond_to?(:exception)
        error = error.exception(*arguments[1])
        return if ThreadParent.of(self)&.raise(error)

        Containment.report(self, error, "Another thread raises this in one that serves: nobody gets it.")
      end

      # A killed fiber could not wait in its `ensure`, as a killed thread can: its next waits would end at once.
      def kill
        if equal?(::Thread.current) && ::Fiber.scheduler.is_a?(ServingScheduler)
          ::Fiber.current.kill if ::Fiber.blocking?
          ::Kernel.raise ::Async::Cancel, "Thread.exit"
        end
        return super unless fairlead_serves

        ::Console.error(self, "Another thread kills one that serves, and with it all of its requests: it goes on.")
        self
      end
      alias exit kill
      alias terminate kill
    end

    # Prepended to Fiber's singleton class: another scheduler would first close that of all requests.
    module FiberClass
      def set_scheduler(scheduler)
        return super unless ::Thread.current.fairlead_serves

        ::Kernel.raise ::FiberError, "this thread has the server's scheduler: use that (Async, Sync), or set one in a thread of your own"
      end
    end

    # Prepended to Fiber: the scheduler's own fiber must not be killed.
    module Fibers
      def kill
        return super unless equal?(::Fiber.current) && ::Fiber.blocking? && ::Fiber.scheduler.is_a?(ServingScheduler)

        ::Kernel.raise ::SystemExit
      end
    end

    # Prepended to Thread's singleton class.
    module ThreadClass
      def exit = ::Thread.current.kill

      def kill(thread) = thread.kill
    end

    # @param subject [Object] the task or scheduler that has raised it
    # @param error [Exception]
    # @param message [String]
    def self.report(subject, error, message = "An exception has ended it.")
      return StrayChild.end_process(error) if StrayChild.of_parent?(subject)

      ::Console.error(subject, message, exception: error)
      nil
    end

    ::Async::Task.prepend(Tasks)
    ::Fiber.prepend(Fibers)
    ::Fiber.singleton_class.prepend(FiberClass)
    ::Thread.prepend(Threads)
    ::Thread.singleton_class.prepend(ThreadClass)
  end
end
