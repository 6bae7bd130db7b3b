# frozen_string_literal: true

require_relative "attributes"

module Fairlead
  # The fiber of a request or task, for the threads that it starts. They take `Thread.current` of the fiber for its thread, as everywhere:
  # what they raise there, and their `Thread#wakeup`, reaches that fiber. It arrives at a wait, as all interruptions do.
  class ThreadParent
    # A key of fiber storage: threads inherit it, and pass it on to theirs.
    KEY = :fairlead_thread_parent
    # The fiber of each, which a thread that stays must not keep once it has ended: with its block, it holds what its request had.
    FIBERS = ::ObjectSpace::WeakMap.new
    private_constant :KEY, :FIBERS

    # Prepended to Thread's singleton class.
    module Starts
      def new(...)
        ThreadParent.remember
        super
      end

      def start(...)
        ThreadParent.remember
        super
      end

      def fork(...)
        ThreadParent.remember
        super
      end
    end

    # Prepended to Thread.
    module Waits
      def join(...) = super.tap { ThreadParent.await_exceptions }

      def value = super.tap { ThreadParent.await_exceptions }

      def wakeup = ThreadParent.of(self)&.wakeup ? self : super

      def run = ThreadParent.of(self)&.wakeup ? self : super
    end
    private_constant :Starts, :Waits

    class << self
      # The present fiber is about to start a thread.
      def remember
        return unless ::Thread.current.fairlead_serves

        fiber = FiberOwner.current
        return if fiber.blocking? # the scheduler's own, whose storage all requests inherit

        Fiber[KEY] = new(fiber) unless Fiber[KEY]&.now?(fiber)
      end

      # The present thread begins, and is nobody's: it serves, and its requests would inherit what it has.
      def forget = Fiber[KEY] = nil

      # @param thread [Thread]
      # @return [ThreadParent, nil] of the present thread, or of the one that has started it, if it is a fiber of that other thread.
      def of(thread)
        return if !thread.fairlead_serves || thread.equal?(::Thread.current)

        parent = Fiber[KEY]
        parent if parent&.in?(thread)
      end

      # A thread raises before it ends: whoever has awaited its end gets that now.
      def await_exceptions
        ::Fiber.scheduler.yield if ::Thread.current.fairlead_serves && ::Fiber.current_scheduler && Fiber[KEY]&.exceptions?
      end
    end

    # @param fiber [Fiber] of the present thread.
    def initialize(fiber)
      FIBERS[self] = fiber
      @thread = ::Thread.current
      @scheduler = ::Fiber.scheduler
      @serving = fiber.fairlead_serving_fiber
      @request = @serving&.request&.id
      @raised = []
    end

    # Fiber#storage shows it to the app: the server's own objects would fill pages.
    def inspect = "#<#{self.class}>"

    # @return [Boolean] whether it stands for what that fiber does now.
    def now?(fiber) = fiber.equal?(self.fiber) && !ended?

    def in?(thread) = @thread.equal?(thread)

    # @return [Boolean] whether there are some that the fiber has not got yet.
    def exceptions? = @raised.any? || fiber&.fairlead_postponed&.any?

    # Has the fiber get an exception at its present wait, or its next one, unless its request ends before. Safe in any thread.
    #
    # @param error [Exception]
    # @return [Boolean] whether its request, or its task, still runs.
    def raise(error)
      return false if ended?

      @raised.push(error)
      call do
        @raised.shift
        fiber.raise(Uninterruptible::Scope.new(error) { ended? }) unless ended?
      end
    end

    # Ends the fiber's sleep. Safe in any thread.
    #
    # @return [Boolean] (see #raise)
    def wakeup
      return false if ended?

      call { @scheduler.unblock(nil, fiber) if !ended? && fiber.fairlead_woken == false }
    end

    private

    # @return [Fiber, nil]
    def fiber = FIBERS[self]

    # In the scheduler's own fiber.
    def call(&)
      @scheduler.unblock(nil, ScheduledCall.new(&))
      true
    end

    def ended?
      return true unless fiber&.alive?
      return false unless @serving

      request = @serving.request
      request.nil? || request.id != @request || request.answered?
    end

    ::Thread.singleton_class.prepend(Starts)
    ::Thread.prepend(Waits)
  end
end
