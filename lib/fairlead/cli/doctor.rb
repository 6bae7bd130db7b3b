# frozen_string_literal: true

module Fairlead
  class CLI
    # `fairlead doctor`: loads the app as if to serve it, and examines it.
    class Doctor
      # @param flags [Flags]
      # @param output [IO]
      def initialize(flags, output:)
        @flags = flags
        @output = output
      end

      # @return [Integer] the exit status.
      def run
        Fairlead.serving!
        Fairlead.configuration = configuration = @flags.configuration
        configuration.export_environment
        AppLoader.load(configuration)
        Fairlead::Doctor.new(configuration).report(@output)
      end
    end
  end
end
