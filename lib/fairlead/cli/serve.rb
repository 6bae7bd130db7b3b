# frozen_string_literal: true

module Fairlead
  class CLI
    # `fairlead` without a subcommand: serves the app, or prints the help or the version. And `fairlead doctor`: loads the app as
    # if to serve it, and examines it.
    class Serve
      def initialize(flags, arguments, output:)
        @flags = flags
        @arguments = arguments
        @output = output
      end

      def run
        return print(@flags.help) if @flags.help?
        return print("Fairlead #{VERSION}\n") if @flags.version?
        return examine if @flags.doctor?

        # They would end the process. So early they mean nothing: the newest code is loaded in any case.
        %i[USR1 USR2].each { |signal| trap(signal) { nil } }
        start_command = StartCommand.current(@arguments)
        Supervision.server(configuration, start_command).run
      end

      # @return [Boolean] whether it serves, and does not just print or examine something.
      def serves? = !(@flags.help? || @flags.version? || @flags.doctor?)

      private

      def print(text)
        @output.write(text)
        0
      end

      def examine
        Fairlead.configuration = configuration
        AppLoader.load(configuration)
        Doctor.new(configuration).report(@output)
      end

      def configuration
        Fairlead.serving!
        @configuration ||= @flags.configuration.tap(&:export_environment)
      end
    end
  end
end
