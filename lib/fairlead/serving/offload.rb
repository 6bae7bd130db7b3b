# frozen_string_literal: true

require_relative "../parts"

module Fairlead
  # Defined before its parts, which would load it again otherwise.
  class Offload; end
end

require_relative "offload/job"

module Fairlead
  # The threads that run what {Fairlead.offload} is given: few, made on need, ended when idle. Blocks that find all of
  # them busy wait in the order they came.
  class Offload
    # Seconds without a block, after which a thread ends.
    IDLE = 10
    # The same as the reactors', so that requests get their slices beside what computes here.
    PRIORITY = -3
    private_constant :IDLE, :PRIORITY

    # A class of its own, to recognise them: what is offloaded within one of them runs in place.
    Thread = Class.new(::Thread)

    class << self
      # @return [Integer] the most threads of this process, from now on.
      attr_writer :threads

      def threads = @threads ||= Configuration::TABLE[:offload_threads].default_value(nil)

      # (see Fairlead.offload)
      def call(&block)
        return yield if Fiber.current_scheduler.nil? || ::Thread.current.is_a?(Thread)

        job = Job.new(block)
        pool.push(job)
        job.value
      end

      # @return [Boolean] whether a block would be run at once.
      def free? = pool.free?

      # @return [Offload] the threads of this process: the child of a fork has none of its parent's.
      # @api private
      def pool
        return @pool if @pool&.own?

        LOCK.synchronize { @pool&.own? ? @pool : @pool = new }
      end
    end

    LOCK = ::Thread::Mutex.new
    private_constant :LOCK

    # @api private
    def initialize
      @process = Process.pid
      @jobs = ::Thread::Queue.new
      @threads = []
      @lock = ::Thread::Mutex.new
    end

    # @return [Boolean] whether its threads belong to this process.
    def own? = @process == Process.pid

    # @param job [Job]
    def push(job)
      @lock.synchronize do
        @jobs.push(job)
        grow
      end
    end

    # @return [Boolean] whether a thread has nothing to do, or may be made.
    def free? = @jobs.size < @jobs.num_waiting || @threads.size < Offload.threads

    # @return [Integer] how many threads there are.
    def size = @threads.size

    private

    def grow
      return unless @jobs.size > @jobs.num_waiting && @threads.size < Offload.threads

      @threads << BareThread.start("fairlead offload", type: Thread, report: true) { work }
    rescue ThreadError => error
      # The system allows no more threads. Those that run take the job, if there are any.
      @jobs.pop.refuse(error.dup) until @jobs.empty? || @threads.any?
    end

    def work
      Thread.current.priority = PRIORITY # set here: Ruby gives each thread that begins the usual one
      while (job = take)
        job.run
      end
    ensure
      # A block may have ended the thread, while other blocks wait for one.
      @lock.synchronize { @threads.delete(::Thread.current) and @jobs.empty? || grow } if own?
    end

    # @return [Job, nil] nil: there has been nothing to do for a while.
    def take
      loop do
        job = @jobs.pop(timeout: IDLE)
        return job if job

        @lock.synchronize { return @threads.delete(::Thread.current) && nil if @jobs.empty? }
      end
    end
  end
end
