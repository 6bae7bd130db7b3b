# frozen_string_literal: true

# The `fairlead` command: its flags, its subcommands, and what they print.
# Called by exe/fairlead.
# Calls configuration, control, doctor, hot_restart and supervision.

require_relative "parts"

module Fairlead
  # The `fairlead` command.
  class CLI
    autoload :Command, "fairlead/cli/command"
    autoload :Flags, "fairlead/cli/flags"
    autoload :Redaction, "fairlead/cli/redaction"
    autoload :Report, "fairlead/cli/report"
    autoload :Restart, "fairlead/cli/restart"
    autoload :Serve, "fairlead/cli/serve"
    autoload :Slow, "fairlead/cli/slow"
    autoload :SlowTable, "fairlead/cli/slow_table"
    autoload :Stalls, "fairlead/cli/stalls"
    autoload :StallsTable, "fairlead/cli/stalls_table"
    autoload :Status, "fairlead/cli/status"
    autoload :StatusTable, "fairlead/cli/status_table"
    autoload :Top, "fairlead/cli/top"
    autoload :TopScreen, "fairlead/cli/top/screen"
    autoload :TopTables, "fairlead/cli/top/tables"
    autoload :TopTerminal, "fairlead/cli/top/terminal"
    autoload :TopText, "fairlead/cli/top/text"

    def initialize(arguments, output: $stdout, errors: $stderr)
      @arguments = arguments.dup
      @output = output
      @errors = errors
    end

    # As {#run}, for the process of the executable, which may be started anew: see {FiberStacks}.
    #
    # @return [Integer] the exit status.
    def main
      FiberStacks.ensure { StartCommand.current(@arguments) } if serves?
      run
    end

    # @return [Integer] the exit status.
    def run
      parent = ParentLink.current
      command.run
    rescue Error => error
      parent ? parent.failed(error.message) : @errors.puts("fairlead: #{error.message}")
      1
    rescue SignalException => error
      128 + error.signo
    end

    private

    # What is wrong with the arguments is told by {#run}.
    def serves?
      serve = command
      serve.is_a?(Serve) && serve.serves?
    rescue Error
      false
    end

    def command
      case @arguments.first
      when "report" then subcommand(Report)
      when "restart" then subcommand(Restart)
      when "slow" then subcommand(Slow)
      when "stalls" then subcommand(Stalls)
      when "status" then subcommand(Status)
      when "top" then subcommand(Top)
      else Serve.new(Flags.new(@arguments), @arguments, output: @output)
      end
    end

    def subcommand(type) = type.new(@arguments.drop(1), output: @output, errors: @errors)
  end
end
