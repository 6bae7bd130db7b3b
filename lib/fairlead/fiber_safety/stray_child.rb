# frozen_string_literal: true

module Fairlead
  # Ends the child of a fork that returned from the request, or from the offloaded block, that forked it: it must not serve.
  module StrayChild
    # Prepended to Async::Task, in the child: the next fiber on the ready list is the parent's.
    module TaskEnd
      private

      def finish!
        StrayChild.end_process($! || error_of_promise) if StrayChild.of_parent?(self)
        super
      end

      def error_of_promise = (@promise.value if failed?)
    end

    class << self
      # Ends the process, as if the app had ended it.
      #
      # @param error [Exception, nil] what was raised in it.
      def end_process(error)
        [$stdout, $stderr].each(&:flush)
        $stderr.puts(error.full_message(highlight: false)) if error && !error.is_a?(SystemExit)
        Process.exit!(error.is_a?(SystemExit) ? error.status : error.nil?)
      end

      # @return [Boolean] whether it is a task that the parent has begun.
      def of_parent?(task) = !@scheduler.nil? && task.is_a?(::Async::Task) && @scheduler.equal?(task.root)

      # Has the process end with the task, of this scheduler, that has forked it.
      def end_with_tasks_of(scheduler)
        @scheduler = scheduler
        ::Async::Task.prepend(TaskEnd)
      end
    end
  end
end
