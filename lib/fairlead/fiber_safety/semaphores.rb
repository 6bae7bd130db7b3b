# frozen_string_literal: true

require "async/semaphore"

module Fairlead
  # Prepended to Async::Semaphore, which resumes a fiber that waits out of the one that releases: a fiber of another reactor cannot be
  # resumed from here, and is never woken. Requests of several reactors share one where they share an HTTP or Redis client of Async's: its
  # pool of connections has one. Threads without a scheduler may share it too.
  #
  # Places are given in the order of asking: whoever releases one hands it to the first that waits.
  module Semaphores
    # For all of them: no semaphore waits, or calls an app, while it has it. See {#exclusively}.
    LOCK = ::Thread::Mutex.new

    # One that waits for a place.
    class Waiter < ::Async::List::Node
      def initialize
        @place = ::Thread::Queue.new
      end

      def wait = @place.pop

      def wake = @place << true
    end
    private_constant :LOCK, :Waiter

    # (see Async::Semaphore#acquire)
    def acquire
      take_place
      return unless block_given?

      begin
        yield
      ensure
        release
      end
    end

    # (see Async::Semaphore#async)
    def async(*arguments, parent: @parent || ::Async::Task.current, **options)
      take_place
      begun = false
      begin
        parent.async(**options) do |task|
          begun = true
          begin
            yield task, *arguments
          ensure
            release
          end
        end
      rescue ::Exception
        release unless begun
        raise
      end
    end

    # (see Async::Semaphore#release)
    def release
      exclusively do
        @count -= 1
        hand_over
      end
      nil
    end

    # (see Async::Semaphore#limit=)
    def limit=(limit)
      exclusively do
        @limit = limit
        hand_over
      end
    end

    private

    # The thread waits for the lock, not the fiber: whatever is raised in a fiber that waits would lose a place that it releases.
    def exclusively(&) = ::Fiber.blocking { LOCK.synchronize(&) }

    def take_place
      waiter = nil
      exclusively do
        if blocking?
          @waiting.append(waiter = Waiter.new)
        else
          @count += 1
        end
      end
      return unless waiter

      begin
        waiter.wait
        waiter = nil
      ensure
        give_up(waiter) if waiter
      end
    end

    # @param waiter [Waiter] one whose wait has been cut short; it may have got its place by then
    def give_up(waiter)
      exclusively do
        next if @waiting.remove?(waiter)

        @count -= 1
        hand_over
      end
    end

    def hand_over
      until blocking? || @waiting.empty?
        waiter = @waiting.first
        @waiting.remove(waiter)
        @count += 1
        waiter.wake
      end
    end

    ::Async::Semaphore.prepend(self)
  end
end
