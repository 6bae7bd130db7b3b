# frozen_string_literal: true

module Fairlead
  class CLI
    # `fairlead` without a subcommand: serves the app, or prints the help or the version.
    class Serve
      # @param flags [Flags]
      # @param arguments [Array<String>] with which the command can be started once more.
      def initialize(flags, arguments, output:, errors:)
        @flags = flags
        @arguments = arguments
        @output = output
        @errors = errors
      end

      # @return [Integer] the exit status.
      def run
        return print(@flags.help) if @flags.help?
        return print("Fairlead #{VERSION}\n") if @flags.version?

        # These signals would end a process that does not serve yet.
        %i[USR1 USR2].each { |signal| trap(signal) { nil } }
        start_command = StartCommand.present(@arguments)
        parent = ParentLink.find
        CLI.exit_status(@errors, parent:) { serve(start_command, parent) }
      end

      private

      def print(text)
        @output.write(text)
        0
      end

      def serve(start_command, parent)
        Fairlead.serving!
        configuration = @flags.configuration
        rehearse(configuration)
        return supervise(configuration, start_command, parent) if parent || configuration.workers.zero?

        InitProcess.new(start_command, configuration) do |link|
          CLI.exit_status(@errors, parent: link) { supervise(configuration, start_command, link) }
        end.run
      end

      def supervise(configuration, start_command, parent)
        configuration.export_environment
        Supervisor.new(configuration, parent:, again: start_command).run
      end

      # Under `workers 0`, a new command shows first that it can replace the running one.
      def rehearse(configuration)
        Rehearsal.pass do
          configuration.export_environment
          Fairlead.configuration = configuration
          AppLoader.load(configuration)
        end
      end
    end
  end
end
