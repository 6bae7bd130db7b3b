# frozen_string_literal: true

require "io/console"
require "json"
require_relative "../parts"

module Fairlead
  class Status
    # `fairlead status`: what a running server does now.
    class Command < Inquiry::Command
      INTRODUCTION = <<~TEXT
        Usage: fairlead status [flags]

        Shows what a running server and each of its workers do now, and what is the matter
        if something is. The server is the one that runs in this folder, or the only one of
        this user. No worker is waited for: it works also if all of them are stuck.

      TEXT
      # Seconds between two looks, for what is said by the second.
      BETWEEN = 0.5
      CLEAR = "\e[H\e[2J\e[3J"
      private_constant :BETWEEN, :CLEAR

      private

      def name = "status"

      def introduction = INTRODUCTION

      def flags(parser)
        parser.on("--every SECONDS", Float, "Looks again and again, until Ctrl-C.") { |seconds| @every = seconds }
        parser.on("--json", "All that is known, as JSON; with --every, a line for each look.") { @json = true }
      end

      def act(server)
        refuse_to_hurry if @every && !@every.positive?
        before = report(server)
        wait = BETWEEN
        loop do
          sleep wait
          before = report(Inquiry.choose(@servers.call, pid: server[:pid]), before)
          show(before.to_h)
          break unless (wait = @every)
        end
      rescue Errno::EPIPE
        nil # nobody reads on
      end

      def refuse_to_hurry
        raise ConfigurationError, "--every #{@every}: that is no time to wait. --every 1 looks once a second."
      end

      def report(server, before = nil)
        return Report.new(server, before:) if server[:status]

        raise ConfigurationError, "The server (process #{server[:pid]}) is of an older version of Fairlead, which does not say " \
                                  "what it does. Restart it: `fairlead restart --pid #{server[:pid]}`."
      end

      def show(report)
        @output.write(CLEAR) if @every && !@json && @output.tty?
        @output.write(@json ? json(report) : "#{"\n" if @shown && !@output.tty?}#{Table.new(report, width:)}")
        @output.flush
        @shown = true
      end

      # @return [Integer, nil] of the terminal.
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
