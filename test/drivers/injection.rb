# frozen_string_literal: true

require "async"
require "timeout"

module Fairlead
  # Raises in a fiber at its n-th wait, in whatever it does then: for n from 1 until it ends without having waited so often.
  #
  #   Injection.each { |attempt| attempt.run { work } }
  module Injection
    # At the wait itself, or once the other side has done its part and the answer is there.
    MOMENTS = { at_once: 0, late: 0.015 }.freeze
    # What is raised, when, and at which waits after that it is raised again: in the clean-up, mostly.
    WAYS = [
      [:deadline, :at_once, []], [:deadline, :late, [1]], [:gone, :late, []], [:timeout, :at_once, [1, 2]], [:timeout, :late, [1]],
      [:cancel, :at_once, [2, 3]], [:cancel, :late, []]
    ].freeze

    # What is raised, and how.
    KINDS = {
      deadline: ->(task) { task.fiber.raise(RequestTimeout, "injected") },
      gone: ->(task) { task.fiber.raise(ClientGone, "injected") },
      timeout: ->(task) { task.fiber.raise(::Timeout::ExitException, "injected") },
      cancel: :cancel.to_proc
    }.freeze

    # Of the scheduler.
    module Waits
      %i[block io_wait io_read io_write yield].each do |name|
        define_method(name) do |*arguments, **options|
          Injection.current&.waits(self)
          super(*arguments, **options)
        end
      end
    end

    class << self
      # @return [Attempt, nil] the one whose fiber this is.
      def current = (@attempt if @attempt&.mine?)

      # @param ways [Integer] how many.
      # @yieldparam [Attempt]
      # @return [Integer] how many there were.
      def each(ways = WAYS.size, &)
        WAYS.first(ways).sum do |kind, moment, again|
          (1..).find do |nth|
            @attempt = Attempt.new(kind, moment, [nth, *again.map { |later| nth + later }])
            yield @attempt
            @attempt.reached.zero?
          end
        end
      ensure
        @attempt = nil
      end
    end

    # One run of the work.
    class Attempt
      # @return [Integer] how many times it was raised.
      attr_reader :reached
      # @return [Exception, nil] what the work has ended with.
      attr_reader :error

      def initialize(kind, moment, at)
        @kind, @moment, @at = kind, moment, at
        @count = @reached = 0
        @places = []
      end

      def mine? = @task && @task.fiber.equal?(Fiber.current)

      # Does the work in a task of its own.
      def run
        Async do |task|
          @task = task
          yield
        rescue Exception => @error
          raise if @error.is_a?(Async::Cancel)
        ensure
          @task = nil
        end.wait
        self
      end

      # @return [Boolean] whether the work came to its end.
      def done? = @error.nil? && !@cancelled

      # Of the fiber, about to wait.
      def waits(scheduler)
        return unless @at.include?(@count += 1)

        @reached += 1
        @places << caller.grep_v(%r{injection\.rb|/async|/io-event|uninterruptible}).first(6).map { |line| line[%r{[^/]+:\d+.*}] }.join(" < ")
        scheduler.push(raiser(@task))
      end

      def to_s = "#{@kind} #{@moment} at #{@at.join(", ")} (#{@error.class}: #{@error&.message.to_s[0, 120]}) in #{@places.join(" | ")}"

      private

      def raiser(task)
        Fiber.new(blocking: false, storage: {}) do
          Fiber.blocking { sleep(MOMENTS.fetch(@moment)) } unless MOMENTS.fetch(@moment).zero?
          @cancelled = true if @kind == :cancel
          KINDS.fetch(@kind).call(task) if task.fiber&.alive?
        rescue FiberError
          nil # it has ended
        end
      end
    end
  end
end
