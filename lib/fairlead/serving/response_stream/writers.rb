# frozen_string_literal: true

require "async"

module Fairlead
  class ResponseStream
    # Who may go on with the stream of a callable body that has returned: the threads and tasks that it has started, and, if
    # it did nothing with the stream itself, those to whom it has handed it on.
    class Writers
      # Of fiber storage: threads, tasks, and those whom they start, inherit it.
      KEY = :fairlead_stream_writers
      # Seconds from one look to the next whether anybody has the stream.
      LOOKS = [0.1, 1.1, 1.1, 2].freeze
      # Collections that are made for that, where nobody is known to have it.
      COLLECTIONS = 3
      private_constant :LOOKS, :COLLECTIONS

      # Of Thread's own class.
      module Noting
        def new(...) = Writers.note(super)
        def start(...) = Writers.note(super)
        def fork(...) = Writers.note(super)
      end

      class << self
        # @return [void]
        def establish = ::Thread.singleton_class.prepend(Noting)

        # @return [Thread]
        def note(thread)
          Fiber[KEY]&.add(thread)
          thread
        end

        # What nobody holds is collected, also where nothing else makes garbage; at most once a second, for all.
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
        @streams = ObjectSpace::WeakMap.new # one: it is not held here
      end

      def add(thread) = @threads << thread

      # Has the body write.
      def run(body, stream)
        @streams[stream] = true
        Fiber[KEY] = self
        body.call(stream)
        @handed_on = !stream.used? && waits == @waits && left.empty?
      ensure
        Fiber[KEY] = nil
      end

      # Waits until the response has ended, or nobody is left who could end it.
      #
      # @param ended [Thread::Queue] is told when it has.
      # @return [Boolean] false if one of those who were to go on has failed.
      def await(request, ended)
        return true unless @handed_on || left.any?

        watcher = @task.async(transient: true) { see_off(ended) } unless @handed_on
        looks = 0
        until ended.pop(timeout: LOOKS[looks] || LOOKS.last) || gone?(request)
          looks += 1
          Writers.collect if @handed_on && looks <= COLLECTIONS
          break if @streams.keys.empty?
        end
        !@failed
      rescue ClientGone, RequestTimeout => error
        tell(error)
        raise
      ensure
        watcher&.stop
      end

      # They may live for long, and have it in their storage.
      def forget
        @task = nil
        @threads = @before = []
      end

      private

      # Where abandoned requests are cancelled, the request is told of it in its wait.
      def gone?(request) = request.gone? && !RequestDeadlines.current&.cancels_abandoned

      # Its deadline, or that its client has gone, is raised in the tasks that write for the request too.
      def tell(error) = left.grep(::Async::Task).each { |task| task.fiber.raise(error) if task.alive? }

      def see_off(ended)
        while (one = left.first)
          await_end(one)
        end
        ended.push(:left)
      end

      def await_end(one)
        one.is_a?(::Thread) ? one.join : one.wait
      rescue ::Async::Cancel
        raise
      rescue ::Exception # it has been reported there
        @failed = true
      end

      def left = @threads.select(&:alive?) + tasks.reject { |task| @before.include?(task) }

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
