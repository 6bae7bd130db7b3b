# frozen_string_literal: true

require "timeout"
require_relative "../parts"
require_relative "attributes"

module Fairlead
  # Sections that no exception from outside cuts short: taking a lock again, checking a connection in, recording its owner.
  #
  # A deadline, a client that has gone, Timeout and Task#cancel all arrive as Fiber#raise, at any wait, also within `ensure`.
  # Within {run}, Fiber#raise and Fiber#kill are held back and take effect when the section ends. The section may wait, and must end by
  # itself: a timeout that begins within it ends it as usual, and so does what concerns the very IO that it waits for.
  #
  # The same holds in the blocks of Thread.handle_interrupt, for the exceptions that they name with `:never`. Ruby's own method knows
  # Thread#raise and Thread#kill only; in a fiber of a scheduler, nothing holds these back.
  module Uninterruptible
    NEVER = { ::Object => :never }.freeze
    # Who masks these does not think of timeouts. Timeout calls it unsupported to mask its own exception.
    BROAD = [::Object, ::Exception, ::Timeout::ExitException, nil].freeze
    # Ruby's own.
    HANDLE_INTERRUPT = ::Thread.method(:handle_interrupt)
    private_constant :NEVER, :BROAD, :HANDLE_INTERRUPT

    # @!attribute outer [Section, nil] the section around it
    # @!attribute mask [Hash{Module => Symbol}, nil] what Thread.handle_interrupt was given; nil: it holds back everything, whatever
    #   the sections within it say
    # @!attribute held [Array<Interruption>, nil] what is raised when it ends
    Section = Struct.new(:outer, :fiber, :mask, :held) do
      # @return [Symbol, nil] when such an exception may be raised within it, as Thread.handle_interrupt says; nil: it does not say.
      def timing(interruption) = mask ? mask[key(interruption)] : :never

      # Whether it lets an interruption through whatever its timing: a timeout that began within it, but for a mask that is for timeouts,
      # or what ends the wait for one IO, since schedulers raise that in its wait only.
      def meant?(interruption)
        interruption.of_io? ||
          (interruption.scope && equal?(interruption.section) && (mask.nil? || BROAD.include?(key(interruption))))
      end

      private

      # @return [Module, nil] what the mask knows the exception by.
      def key(interruption) = interruption.ancestors.find { |type| mask.key?(type) }
    end
    private_constant :Section

    # An exception for Fiber#raise that knows where it belongs: sections that were begun outside of that place do not hold it back,
    # and it is dropped once it no longer applies.
    class Scope
      # @return [Section, nil] where its timeout began.
      attr_reader :section

      # @param exception [Class, Exception] what Fiber#raise takes
      # @yieldreturn [Boolean] whether it no longer applies
      def initialize(exception, section = nil, &finished)
        @exception = exception
        @section = section
        @finished = finished
      end

      # It no longer applies.
      def finish = @finished = -> { true }

      def finished? = @finished ? @finished.call : false

      # What Fiber#raise calls.
      def exception(...) = @exception.exception(...)

      # @return [Array<Module>] of the exception's class.
      def ancestors = (@exception.is_a?(::Module) ? @exception : @exception.singleton_class).ancestors
    end

    # What is held back. Without arguments, it is a Fiber#kill.
    Interruption = Struct.new(:fiber, :arguments, :options) do
      def scope = (arguments.first if arguments&.first.is_a?(Scope))

      def section = scope&.section

      # @return [Array<Module>] of what is raised. For Ruby, a kill is a number.
      def ancestors
        case cause = arguments ? arguments.first : 0
        when Scope, ::Module then cause.ancestors
        when ::String, nil then ::RuntimeError.ancestors
        when ::Integer then ::Integer.ancestors
        else cause.singleton_class.ancestors
        end
      end

      def of_io? = ::IO::TimeoutError.equal?(arguments&.first)

      def kill? = arguments.nil?

      # @return [Boolean] whether it no longer applies.
      def finished? = scope&.finished? || !fiber.alive?

      # @return [Boolean] whether both cancel the task of their fiber: one suffices.
      def same_cancellation?(other)
        cancel?(arguments) && cancel?(other.arguments) && fiber.equal?(other.fiber)
      end

      # In its own fiber.
      def raise_here = arguments ? ::Kernel.raise(*arguments, **options) : fiber.kill

      # In another fiber: it may be held back once more.
      def raise_there = arguments ? fiber.raise(*arguments, **options) : fiber.kill

      private

      def cancel?(arguments) = defined?(::Async::Cancel) && ::Async::Cancel.equal?(arguments&.first)
    end
    private_constant :Interruption

    # Of Fiber.
    module Raise
      def raise(*arguments, **options) = Uninterruptible.hold(self, arguments, options) ? nil : super

      def kill = Uninterruptible.hold(self, nil, nil) ? self : super
    end

    # Of Async::Scheduler, whose selector raises in a fiber without calling Fiber#raise, and whose timeout_after goes through
    # with_timeout.
    module AsyncScheduler
      def raise(fiber, *arguments, **options) = Uninterruptible.hold(fiber, arguments, options) ? nil : super

      # The timeout knows in which section it began.
      def with_timeout(duration, exception = ::Async::TimeoutError, message = "execution expired", &)
        scope = Scope.new(exception, ::Fiber.current.fairlead_section)
        super(duration, scope, message, &)
      ensure
        scope.finish
      end
    end
    private_constant :AsyncScheduler

    # Of Thread. Threads share one stack of interrupt masks among their fibers: it must not be held while a fiber waits.
    module HandleInterrupt
      TIMINGS = %i[immediate on_blocking never].freeze
      private_constant :TIMINGS

      def handle_interrupt(mask, &)
        return super unless block_given? && ::Fiber.current_scheduler && mask.is_a?(::Hash)

        mask.each_value { |timing| return super unless TIMINGS.include?(timing) }
        Uninterruptible.mask(mask, &)
      end

      def pending_interrupt?(...) = ::Thread.current.pending_interrupt?(...)

      # A thread begins with the masks of the one that starts it; here, of the fiber. These are no blocks of define_method, which no
      # Ractor could call.
      def new(...) = (section = ::Fiber.current.fairlead_section) ? Uninterruptible.hand_on(section) { super } : super

      # (see #new)
      def start(...) = (section = ::Fiber.current.fairlead_section) ? Uninterruptible.hand_on(section) { super } : super

      # (see #new)
      def fork(...) = (section = ::Fiber.current.fairlead_section) ? Uninterruptible.hand_on(section) { super } : super
    end

    # Of a thread.
    module PendingInterrupt
      def pending_interrupt?(*types) = super || (equal?(::Thread.current) && Uninterruptible.pending?(*types))
    end
    private_constant :HandleInterrupt, :PendingInterrupt

    class << self
      # Runs the block to its end. May be nested: what comes from outside is raised as the outermost section ends.
      #
      # @return [Object] what the block returns.
      # @raise [Exception] what another fiber has raised in this one meanwhile; it replaces what the block raises.
      def run(&)
        fiber = ::Fiber.current
        scheduler = ::Fiber.current_scheduler
        return ::Thread.handle_interrupt(NEVER) { hold_back(fiber, nil, &) } unless scheduler

        prepare
        hold_back(fiber, scheduler, &)
      end

      # What Thread.handle_interrupt does, in a fiber of a scheduler.
      #
      # @param mask [Hash{Module => Symbol}]
      def mask(mask)
        scheduler = ::Fiber.current_scheduler or return yield

        prepare
        hold_back(::Fiber.current, scheduler, mask) do
          release_allowed(::Fiber.current.fairlead_section, scheduler)
          yield
        end
      end

      # @api private
      # @yield under the masks of a section and of those around it, for the thread.
      def hand_on(section, &)
        return yield unless section

        hand_on(section.outer) { section.mask ? HANDLE_INTERRUPT.call(section.mask, &) : yield }
      end

      # @api private
      # @return [Boolean] whether it takes effect later, or never: async's timeouts outlive their block if they have been moved.
      def hold(fiber, arguments, options)
        return true if arguments&.first.is_a?(Scope) && arguments.first.finished?
        return false if fiber.equal?(::Fiber.current)

        interruption = Interruption.new(fiber, arguments, options)
        section = holder_within(fiber, interruption) || holder(fiber.fairlead_section, interruption)
        return let_through(interruption) unless section

        held = section.held ||= []
        held.push(interruption) unless held.any? { |other| other.same_cancellation?(interruption) }
        true
      end

      # @return [Boolean] whether the current fiber's sections hold back anything, or an exception of such a type.
      def pending?(type = ::Object)
        section = ::Fiber.current.fairlead_section
        while section
          return true if section.held&.any? { |interruption| interruption.ancestors.include?(type) }

          section = section.outer
        end
        false
      end

      # @api private
      # @return [Boolean] whether a fiber is no task, and so perhaps one that another fiber has resumed.
      def plain?(fiber) = !(fiber.respond_to?(:async_task) && fiber.async_task)

      # Drops what was held back and has not been raised: the fiber goes on to other work.
      #
      # @api private
      def forget(fiber)
        fiber.fairlead_postponed = nil if fiber.fairlead_postponed
      end

      # Raises an exception in a fiber's current wait, in whichever section: it is what ends that wait.
      #
      # @api private
      def raise_in_wait(fiber, exception) = fiber.raise(Scope.new(exception, fiber.fairlead_section))

      # Has Async's schedulers hold back what they raise, and their timeouts know where they began.
      #
      # @api private
      def prepare
        return if @prepared || !defined?(::Async::Scheduler)

        @prepared = true
        FiberOwner.track
        ::Async::Scheduler.prepend(AsyncScheduler)
      end

      private

      # @return [Boolean] whether it comes later.
      def let_through(interruption)
        section = interruption.fiber.fairlead_section
        while interruption.kill? && section # what it ends, it ends for good
          section.held = nil
          section = section.outer
        end
        put_off(interruption)
      end

      # A fiber that has been woken (a mutex is unlocked, something is in the queue) first takes what it waited for: Ruby wakes one
      # waiter, and no other in its place if that one is interrupted.
      def put_off(interruption)
        return false unless woken?(interruption.fiber)

        postpone(interruption, ::Fiber.scheduler)
        true
      end

      def woken?(fiber)
        fiber.fairlead_woken ||
          ::Thread.current.fairlead_plain_waits&.any? { |plain| plain.fairlead_woken && FiberOwner.resumes?(fiber, plain) }
      end

      # @param section [Section, nil] the innermost one.
      # @return [Section, nil] the one at whose end it is raised; nil: it may be raised now.
      def holder(section, interruption)
        allowed = false
        while section && !section.meant?(interruption)
          timing = section.timing(interruption)
          return section if timing == :never && !(allowed && section.mask)

          allowed ||= !timing.nil?
          section = section.outer
        end
      end

      def hold_back(fiber, scheduler, mask = nil)
        section = fiber.fairlead_section = Section.new(fiber.fairlead_section, fiber, mask)
        plain = enter_plain(fiber) if section.outer.nil? && scheduler && plain?(fiber)
        yield
      ensure
        plain&.delete(fiber)
        fiber.fairlead_section = section.outer
        release(section, scheduler) if section.held
      end

      # @return [ObjectSpace::WeakMap]
      def enter_plain(fiber)
        (::Thread.current.fairlead_plain_sections ||= ::ObjectSpace::WeakMap.new).tap { |plain| plain[fiber] = fiber }
      end

      # What is raised in a fiber that has resumed another one arrives there: in a section of a plain fiber, perhaps.
      #
      # @return [Section, nil]
      def holder_within(fiber, interruption)
        plain = ::Thread.current.fairlead_plain_sections or return
        plain.each_key do |inner|
          section = FiberOwner.resumes?(fiber, inner) && holder(inner.fairlead_section, interruption)
          return section if section
        end
        nil
      end

      # What the sections around the one that ends hold back waits for their end.
      def release(section, scheduler)
        held = section.held.reject do |interruption|
          interruption.finished? || ((outer = holder(section.outer, interruption)) && (outer.held ||= []).push(interruption))
        end
        raise_first(held, section, scheduler)
      end

      # What was held back, and may be raised in the section that begins.
      def release_allowed(section, scheduler)
        outer = section
        while (outer = outer.outer)
          next unless outer.held

          allowed, outer.held = outer.held.partition { |interruption| holder(section, interruption).nil? }
          at_once, at_wait = allowed.reject(&:finished?).partition { |interruption| section.timing(interruption) == :immediate }
          at_wait.each { |interruption| postpone(interruption, scheduler) }
          raise_first(at_once, section, scheduler)
        end
      end

      # Of several, one can be raised here: the rest follows at the fiber's next waits.
      def raise_first(held, section, scheduler)
        here, elsewhere = held.partition { |interruption| interruption.fiber.equal?(section.fiber) }
        first = here.shift
        [*here, *elsewhere].each { |interruption| postpone(interruption, scheduler) }
        first&.raise_here
      end

      def postpone(interruption, scheduler)
        return unless scheduler.respond_to?(:push)

        fiber = interruption.fiber
        waiting = fiber.fairlead_postponed ||= []
        waiting.push(interruption)
        deliver_later(fiber, scheduler) if waiting.one?
      end

      # Raises the next postponed interruption of a fiber, in whatever the fiber waits for by then.
      def deliver_later(fiber, scheduler)
        call = ScheduledCall.new do
          interruption = fiber.fairlead_postponed&.shift or next
          scheduler.push(call) if fiber.fairlead_postponed.any?
          interruption.raise_there unless interruption.finished?
        end
        scheduler.push(call)
      end
    end

    ::Fiber.prepend(Raise)
    ::Thread.singleton_class.prepend(HandleInterrupt)
    ::Thread.prepend(PendingInterrupt)
    prepare
  end
end

require_relative "scheduled_call"
require_relative "timeouts"
