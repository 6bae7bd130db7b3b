# frozen_string_literal: true

require "io/console"
require "json"

module Fairlead
  class CLI
    # `fairlead status`: what a running server does now.
    class Status < Command
      INTRODUCTION = <<~TEXT
        Usage: fairlead status [flags]

        Shows what a running server and each of its workers do now, and any problems. It asks
        the server of this folder, or the only one of this user. It waits for no worker, and
        works even if all of them are stuck.

      TEXT
      # Seconds between the two readings of which rates are made.
      INTERVAL = 0.5
      CLEAR = "\e[H\e[2J\e[3J"
      private_constant :INTERVAL, :CLEAR

      private

      def flags(parser)
        parser.on("--every SECONDS", Float, "Repeat until Ctrl-C.") { |seconds| @every = seconds }
        parser.on("--json", "Print all details as JSON; with --every, on one line each time.") { @json = true }
      end

      def act(server)
        raise ConfigurationError, "--every #{@every}: the interval must be above 0, like --every 1." if @every && !@every.positive?

        report = StatusReport.new(server)
        wait = INTERVAL
        loop do
          sleep wait
          show(report = StatusReport.new(select(@servers.call, server[:pid]), before: report))
          break unless (wait = @every)
        end
      rescue Errno::EPIPE
        nil # the reader has gone
      end

      def show(report)
        @output.write(CLEAR) if @every && !@json && @output.tty?
        @output.write(@json ? json(report.to_h) : "#{"\n" if @shown && !@output.tty?}#{StatusTable.new(report.to_h, width:)}")
        @output.flush
        @shown = true
      end

      def width
        columns = @output.winsize.last if @output.tty?
        columns if columns&.positive?
      rescue SystemCallError
        nil
      end

      def json(report) = "#{@every ? JSON.generate(report) : JSON.pretty_generate(report)}\n"
    end
  end
end
