# frozen_string_literal: true

module Fairlead
  class Offload
    # A block that another thread runs while a fiber waits for it.
    class Job
      # Made by the fiber that will wait.
      def initialize(block)
        @block = block
        @process = Process.pid
        @done = ::Thread::Queue.new
        @finished = @dropped = false
        lend
      end

      # Called by the waiting fiber.
      #
      # @return [Object] what the block returns.
      # @raise what the block raises.
      def value
        RequestTimes.during(RequestTimes::BLOCKED) { @done.pop }
        raise_error if @error
        @value
      ensure
        @dropped = true
      end

      # Called where no thread can run it.
      def refuse(error)
        @error = error
        @done.push(true)
      end

      # Called by the thread that runs it.
      def run
        Fiber.new(blocking: true, storage: @storage) { perform }.resume unless @dropped
      ensure
        @error ||= ThreadError.new("the block has ended the thread that it ran in") unless @finished
        @done.push(true)
      end

      private

      # Keeps what the block is to find as if it ran in the fiber itself.
      def lend
        thread = ::Thread.current
        @storage = Fiber.current.storage
        @locals = thread.keys.to_h { |key| [key, thread[key]] }
        @isolated = FiberOwner.current.instance_variable_get(FiberState::ACTIVE_SUPPORT_STATE)
      end

      def borrow
        FiberOwner.own_state
        ThreadVariables.borrow
        @locals.each { |key, value| ::Thread.current[key] = value }
        Fiber.current.instance_variable_set(FiberState::ACTIVE_SUPPORT_STATE, @isolated) if @isolated
      end

      def perform
        borrow
        @value = @block.call
        @finished = true
      rescue Exception => error # the waiting fiber raises it
        @error = error
      ensure
        StrayChild.end_process(@error) if Process.pid != @process # the block has forked it, and it came back
        Cleanup.run { |failure| warn "fairlead: the end of an offloaded block failed: #{failure.full_message(highlight: false)}" }
      end

      def raise_error
        throw(@error.tag, @error.value) if @error.is_a?(UncaughtThrowError)
        own = ->(line) { line.start_with?(__dir__) }
        begin
          @error.set_backtrace(@error.backtrace.to_a.reverse.drop_while(&own).reverse + caller.drop_while(&own))
        rescue FrozenError
          nil
        end
        raise @error
      end
    end
  end
end
