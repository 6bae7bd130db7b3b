# frozen_string_literal: true

require_relative "parts"

module Fairlead
  # The requests of a worker while `request_timeout` or `cancel_abandoned` is set. The core knows when the time of one is up,
  # and has answered its client by then, whoever turns the loop. What is done here is the rest: a request that waits is
  # told, at its wait, by the reactor whose fiber it has; one that is in a call, as that returns, whether it has Ruby's lock or
  # not. One that computes in Ruby is told when it comes to either, if ever.
  class Deadlines
    # A request, its fiber, and what is put on the ready list of its reactor when its time is up.
    class Running
      # Seconds until one that was found neither at its wait nor in a call is looked at again.
      AGAIN = 0.02
      private_constant :AGAIN

      def initialize(request)
        @request = request
        @fiber = Fiber.current
        @scheduler = Fiber.scheduler
        @told = false
      end

      # It has ended: its fiber may have another request by now.
      def over! = @request = nil

      # (see Fairlead.request_timeout=)
      def limit(seconds) = @request&.limit_time(seconds)

      # Of the driver.
      def tell
        tell_in_call or @scheduler.unblock(nil, self)
      end

      def alive? = @fiber.alive?

      # In the loop's own fiber of its reactor.
      def transfer(*) = due { |error| @fiber.raise(error) }

      # Of its own fiber, in a postponed job: whoever raises there does so in vain.
      #
      # @return [Exception, nil] what another thread shall raise in this one before the job is over.
      def error_to_take = due { |error| takes?(error) ? error : put_off }

      # It could not be told in its call, and others may have given up on it meanwhile.
      #
      # @return [nil]
      def put_off
        @told = false
        @scheduler.unblock(nil, self)
        nil
      end

      private

      # @return [Boolean] whether it has been told.
      def tell_in_call
        due { |error, id| @told = false unless @scheduler.raise_in_call(id, @fiber, error, self) }
        look_again
        @told
      end

      # One of another reactor may just be between two calls, or be going to make one.
      def look_again
        return if @told || @request.nil? || @scheduler.equal?(Fiber.scheduler)

        Fiber.scheduler.after(AGAIN) { tell }
      end

      # It is told once. When its response is over, only callbacks are left: they end in peace.
      def due
        request = @request
        return if @told || request.nil? || request.answered?

        error = error(request)
        return if @told # meanwhile, by another thread

        @told = true
        yield error, request.id
      end

      # Whether the app lets itself be interrupted (Thread.handle_interrupt). Else the error would stay with the thread, for
      # whichever fiber takes it: so it is tried, and taken back.
      def takes?(error)
        return false if Thread.pending_interrupt?

        masked = false
        Thread.current.raise(error.exception("a trial"))
        masked = true
        Thread.handle_interrupt(error.class => :immediate) { nil }
        false
      rescue RequestTimeout, ClientGone
        !masked
      end

      def error(request)
        return ClientGone.new("the client has gone (cancel_abandoned)") unless request.timed_out?

        RequestTimeout.new("the request has taken longer than it may (request_timeout)")
      end
    end
    private_constant :Running

    # Of fiber storage: tasks and threads that a request starts inherit it.
    KEY = :fairlead_deadline
    private_constant :KEY

    # @return [Running, nil] the present request.
    def self.present = Fiber[KEY]

    # @param loop [Loop]
    def initialize(loop)
      @loop = loop
      @running = {}
      loop.deadlines = self
    end

    # @api private
    # Of the core: the present request, of this id, has come back from a call that held Ruby's lock, and its time is up.
    #
    # @return [Exception, nil] what it is to be told.
    def error_for(id) = @running[id]&.error_to_take

    # @api private
    def put_off(id) = @running[id]&.put_off

    # Answers a request, in a serving fiber.
    def during(request)
      id = request.id
      running = Fiber[KEY] = @running[id] = Running.new(request)
      running.put_off if request.timed_out? # nobody knew it here as its time ran out
      yield
    ensure
      running.over!
      @running.delete(id)
    end

    # Of the driver, after each turn: tells those whose time is up.
    #
    # @return [Boolean] whether there were any.
    def tell
      told = false
      while (id = @loop.overdue)
        @running[id]&.tell
        told = true
      end
      told
    end
  end
end
