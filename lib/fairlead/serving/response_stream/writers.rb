# frozen_string_literal: true

require "async"

module Fairlead
  class ResponseStream
    # What may still write to the stream of a callable body that has returned: the threads and tasks that the body has started.
    # If it neither wrote nor waited nor started any, it has handed the stream on, to a queue for example.
    class Writers
      # A key of fiber storage, which threads, tasks, and what they start inherit.
      KEY = :fairlead_stream_writers
      # Seconds from one check to the next whether anything refers to the stream.
      CHECKS = [0.1, 1.1, 1.1, 2].freeze
      # Collections of garbage that are made for that where the stream was handed on.
      COLLECTIONS = 3
      private_constant :CHECKS, :COLLECTIONS

      # Of Thread's own class.
      module Noting
        def new(...) = Writers.register(super)
        def start(...) = Writers.register(super)
        def fork(...) = Writers.register(super)
      end

      class << self
        # @return [void]
        def establish = ::Thread.singleton_class.prepend(Noting)

        # @return [Thread]
        def register(thread)
          Fiber[KEY]&.add(thread)
          thread
        end

        # Collects garbage, also where the app makes none; at most once a second, for all streams.
        def collect
          now = Clock.now
          return if @collected_at && now < @collected_at + 1

          @collected_at = now
          GC.start(full_mark: false)
        end
      end

      def initialize
        @task = ::Async::Task.current
        @before = tasks
        @waits = waits
        @threads = []
        @streams = ObjectSpace::WeakMap.new # refers to the one without keeping it
      end

      def add(thread) = @threads << thread

      # Calls the body.
      def run(body, stream)
        @streams[stream] = true
        Fiber[KEY] = self
        body.call(stream)
        @handed_on = !stream.used? && waits == @waits && remaining.empty?
      ensure
        Fiber[KEY] = nil
      end

      # Waits until the response has ended, or nothing is left that could end it.
      #
      # @param ended [Thread::Queue] gets an entry when it has.
      # @return [Boolean] false if a thread or task has failed.
      def await(request, ended)
        return true unless @handed_on || remaining.any?

        watcher = @task.async(transient: true) { join_all(ended) } unless @handed_on
        checks = 0
        until ended.pop(timeout: CHECKS[checks] || CHECKS.last) || gone?(request)
          checks += 1
          Writers.collect if @handed_on && checks <= COLLECTIONS
          break if @streams.keys.empty?
        end
        !@failed
      rescue ClientGone, ServerStopping, RequestTimeout => error
        raise_in_tasks(error)
        raise
      ensure
        watcher&.stop
      end

      # Threads and tasks that live on have this object in their storage.
      def forget
        @task = nil
        @threads = @before = []
      end

      private

      # Where abandoned requests are cancelled, the request is interrupted in its wait.
      def gone?(request) = request.gone? && !RequestDeadlines.current&.cancels_abandoned

      # The tasks that write for a request are interrupted with it.
      def raise_in_tasks(error) = remaining.grep(::Async::Task).each { |task| ::Fiber.scheduler.raise(task.fiber, error) if task.alive? }

      def join_all(ended)
        while (one = remaining.first)
          await_end(one)
        end
        ended.push(:left)
      end

      def await_end(one)
        one.is_a?(::Thread) ? one.join : one.wait
      rescue ::Async::Cancel
        raise
      rescue ::Exception # reported already
        @failed = true
      end

      def remaining = @threads.select(&:alive?) + tasks.reject { |task| @before.include?(task) }

      # @return [Array<Async::Task>] also those that tasks have started: a task that has ended keeps them.
      def tasks
        found = []
        @task.traverse { |task, _| found << task if task.alive? && !task.transient? && !task.equal?(@task) } if @task&.children?
        found
      end

      def waits = Fiber.current.fairlead_waits
    end
  end
end
