# frozen_string_literal: true

module Fairlead
  class CLI
    # `fairlead top`: what a running server does, live.
    class Top < Command
      INTRODUCTION = <<~TEXT
        Usage: fairlead top [flags]

        Shows live what a running server does: its workers, requests and routes. ? lists
        the keys, q quits. It asks the server of this folder, or the only one of this user, and
        waits for no worker. Where the output is no terminal, it prints one screen and ends.

      TEXT
      # Seconds between the first two answers, of which the first rates are made.
      FIRST = 0.5
      # Columns where there is no terminal.
      WIDTH = 120
      KEPT = 60
      private_constant :FIRST, :WIDTH, :KEPT

      private

      def flags(parser)
        @every = 1.0
        parser.on("--every SECONDS", Float, "Ask so often. Default: 1.") { |seconds| @every = seconds }
      end

      def act(server)
        raise ConfigurationError, "--every #{@every}: the interval must be above 0, like --every 1." unless @every.positive?

        @server = server
        @view = TopScreen::View.new
        @history = []
        $stdin.tty? && @output.tty? ? live : once
      rescue Errno::EPIPE
        nil # the reader has gone
      end

      def once
        fetch
        sleep FIRST
        @output.write(TopScreen.new(fetch || @snapshot, width: width, view: @view))
      end

      def width = @output.tty? ? @output.winsize.last : WIDTH

      def live
        terminal = TopTerminal.new($stdin, @output)
        terminal.use do
          asking = Thread.new { ask_on(terminal.events) }
          show(terminal) until take(terminal.wait(@every)) == :quit
        ensure
          asking&.kill
        end
      end

      # In a thread: a server that does not answer delays no key.
      def ask_on(events)
        wait = FIRST
        loop do
          events << [:answer, fetch]
          sleep wait
          wait = @every
        end
      rescue StandardError => error
        events << [:failed, error]
      end

      # @return [Hash, nil] nil: it has not answered.
      def fetch
        answer = newest(@servers.call) or return
        begin_anew(answer) if answer.values_at(:pid, :supervisor) != @asked
        @report = StatusReport.new(answer, before: @report, usage: @meter)
        reading = RecentTimes.from(answer[:status], at: @report.at)
        @snapshot = { **@report.to_h, stalls: answer[:stalls], now: Time.now.to_f, times: reading && @recent.figures(reading),
                      requests: RequestReports.now(answer[:status]) }
      end

      def begin_anew(answer)
        @asked = answer.values_at(:pid, :supervisor)
        @report = nil
        @meter = ProcessMeter.new
        @recent = RecentTimes.new(Clock.now - Time.now.to_f + answer[:status][:started_at])
      end

      # A server that was started anew in the same folder is the same to its user.
      def newest(servers)
        same = servers.select { |answer| answer[:pid] == @server[:pid] }
        same = servers.select { |answer| answer[:folder] == @server[:folder] } if same.empty? && !@pid
        same.max_by { |answer| answer.dig(:restarts, :generation).to_i }
      end

      def take(event)
        case event&.first
        when :key then return press(event.last)
        when :answer then answered(event.last)
        when :failed then raise event.last
        end
        nil
      end

      def answered(snapshot)
        return @gone_since ||= Clock.now unless snapshot

        @gone_since = nil
        @history = [*@history, snapshot[:total][:requests_per_second]].last(KEPT) if snapshot[:seconds]
        @shown = snapshot unless @view.paused
      end

      def press(key)
        case key
        when "q", "Q" then return :quit
        when "p" then @view = @view.with(paused: !@view.paused)
        when "?", "h" then @view = @view.with(help: !@view.help)
        when "s" then @view = @view.with(sort: @view.sort + 1, offset: 0)
        when "j", "k", " ", "b" then scroll({ "j" => 1, "k" => -1, " " => 10, "b" => -10 }.fetch(key))
        else switch(key)
        end
        nil
      end

      def scroll(rows)
        last = @shown ? TopTables::ALL.fetch(@view.name).rows.call(@shown).size - 1 : 0
        @view = @view.with(offset: (@view.offset + rows).clamp(0, [last, 0].max))
      end

      def switch(key)
        name, = TopTables::ALL.find { |_, table| table.key == key }
        @view = TopScreen::View.new(name:, paused: @view.paused) if name
      end

      def show(terminal)
        columns, rows = terminal.size
        gone = @gone_since && (Clock.now - @gone_since)
        terminal.draw(@shown ? TopScreen.new(@shown, width: columns, height: rows, view: @view, gone:, history: @history).lines : [])
      end
    end
  end
end
