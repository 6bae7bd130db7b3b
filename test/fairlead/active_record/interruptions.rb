# frozen_string_literal: true

require "fairlead/serving/scheduler"

# Within a server: runs an operation on a pool again and again, each time interrupted at the next of its waits, until it
# waits no more often than that. Whenever the operation wants the pool's lock, somebody else has it, so that it has to wait.
class Interruptions
  # Of the scheduler.
  module Waits
    %i[block io_wait io_read io_write io_select address_resolve process_wait].each do |name|
      next unless Fairlead::Scheduler.method_defined?(name)

      define_method(name) do |*arguments|
        Interruptions.current&.waits
        super(*arguments)
      ensure
        # Whoever waited in the line, or on ActiveRecord's own condition variable, needs the lock again.
        Interruptions.current&.occupy if name == :block && [nil, Fairlead::ActiveRecord::Waiter].any? { |kind| kind === arguments.first }
      end
    end
  end

  # The pool's.
  class BusyMonitor < Monitor
    def enter
      Interruptions.current&.occupy unless mon_owned?
      super
    end

    def try_enter
      Interruptions.current&.occupy unless mon_owned?
      super
    end

    def synchronize
      Interruptions.current&.occupy unless mon_owned?
      super
    end
  end

  # On the scheduler's ready list.
  Arrival = Struct.new(:interruptions) do
    def alive? = true
    def direct? = false
    def transfer(*) = interruptions.arrive
  end

  # What a timeout is told to last, by which its timer is found.
  INNER, OUTER = 3_600.0, 7_200.0
  private_constant :BusyMonitor, :Arrival, :INNER, :OUTER

  class << self
    # @return [Interruptions, nil] if the present fiber is the one that is to be interrupted.
    def current = (@current if @current && Fiber.current.equal?(@current.fiber))

    attr_writer :current
  end

  # @return [Fiber]
  attr_reader :fiber

  # @param kind [String] what arrives: request_timeout, client_gone, cancel, timeout, timeouts.
  # @param turns [Integer] for how many turns of the scheduler others keep the lock: with one, they give it back to the
  #   fiber just before it is interrupted.
  # @param other [String] who keeps it: fiber or thread.
  def initialize(pool, kind, turns: 2, other: "fiber")
    @pool = pool
    @kind = kind
    @turns = turns
    @other = other
    @monitor = pool.instance_variable_set(:@mon_data, BusyMonitor.new)
    # What was made with the other monitor.
    pool.instance_variable_get(:@available).then do |queue|
      queue.instance_variable_set(:@fairlead_waiters, nil)
      queue.instance_variable_set(:@cond, pool.new_cond)
    end
    @scheduler = Fiber.scheduler
    @scheduler.singleton_class.prepend(Waits) unless @scheduler.singleton_class.include?(Waits)
  end

  # @param before [Proc] runs in the task, uninterrupted.
  # @param operation [Proc] gets what that returns.
  # @param after [Proc] likewise, at the end of the task.
  # @yield looks whether all is whole.
  # @return [Integer] at how many waits it was interrupted.
  def sweep(before, operation, after)
    (1..500).each do |number|
      run(number, before, operation, after)
      yield number
      return number - 1 unless @arrived
    end
    raise "it never ended"
  end

  # The fiber is about to wait.
  def waits
    return if @occupying

    @waits += 1
    @scheduler.push(Arrival.new(self)) if @waits == @number || (@kind == "timeouts" && @waits == @number + 1)
  end

  # In the scheduler's own fiber.
  def arrive
    return if @over

    @arrived = true
    case @kind
    when "request_timeout" then @fiber.raise(Fairlead::RequestTimeout, "too long")
    when "client_gone" then @fiber.raise(Fairlead::ClientGone, "gone")
    when "cancel" then @task.cancel
    else (@waits > @number ? @timers[OUTER] : @timers[INNER]).call
    end
  end

  # Has somebody else take the lock for a while.
  def occupy
    return if @occupying || @monitor.mon_locked?

    @occupying = true
    @other == "thread" ? occupy_by_thread : occupy_by_fiber
  ensure
    @occupying = false
  end

  private

  def run(number, before, operation, after)
    @number = number
    @waits = 0
    @arrived = @over = @occupying = false
    @task = Async::Task.new(@scheduler) { |task| interrupted(task, before, operation, after) }
    @task.run
    @task.wait
  rescue Async::Cancel
    nil
  end

  def interrupted(task, before, operation, after)
    prepared = before&.call
    @fiber, @task = Fiber.current, task
    begin
      Interruptions.current = self
      timed { operation.call(prepared) }
    rescue Exception => error # of whatever class
      @error = error
    ensure
      Interruptions.current = nil
      @over = true
    end
    after&.call(prepared)
  end

  # With timers that are due when the test says so.
  def timed(&operation)
    return yield unless @kind.start_with?("timeout")

    @timers = timers = {}
    @scheduler.instance_variable_get(:@timers).define_singleton_method(:after) do |seconds, &block|
      timers[seconds] = block if seconds.is_a?(Float) && seconds >= INNER
      super(seconds, &block)
    end
    Timeout.timeout(OUTER) { Timeout.timeout(INNER, &operation) }
  end

  def occupy_by_fiber
    Async::Task.new(@scheduler) do
      @monitor.enter
      @turns.times { @scheduler.yield }
      @monitor.exit
    end.run
  end

  def occupy_by_thread
    locked = Queue.new
    Thread.new { @monitor.synchronize { (locked << true) && sleep(0.002 * @turns) } }
    locked.pop
  end
end
