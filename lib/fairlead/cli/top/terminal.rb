# frozen_string_literal: true

require "io/console"

module Fairlead
  class CLI
    # The terminal of `fairlead top`: its second screen, keys without Enter, and its size. {#use} leaves it as it was, however it ends.
    class TopTerminal
      # The second screen, no cursor, no line breaks at the border; and back.
      ENTER = "\e[?1049h\e[?25l\e[?7l"
      LEAVE = "\e[0m\e[?7h\e[?25h\e[?1049l"
      STYLES = { bold: "\e[1m", heading: "\e[7m", bad: "\e[31m", dim: "\e[2m", keys: "\e[7m" }.freeze
      # What a locale without Unicode shows.
      ASCII = { "…" => "~", "▁" => "_", "▂" => ".", "▃" => "-", "▄" => "-", "▅" => "=", "▆" => "=", "▇" => "#", "█" => "#" }.freeze
      # Signals that end the command, once the terminal is as it was.
      ENDING = %w[INT TERM HUP QUIT].freeze
      ARROWS = { "\e[A" => "k", "\e[B" => "j", "\e[5~" => "b", "\e[6~" => " " }.freeze
      private_constant :ENTER, :LEAVE, :STYLES, :ASCII, :ENDING, :ARROWS

      # @return [Thread::Queue] of [:key, String], [:resized] and whatever others push.
      attr_reader :events

      def initialize(input, output)
        @input = input
        @output = output
        @encoding = Encoding.find("locale")
        @events = Thread::Queue.new
      end

      # @raise [SignalException] in the calling thread, at its next {#wait}.
      def use
        traps = trap_signals
        enter
        reader = Thread.new { read_keys }
        reader.report_on_exception = false
        yield
      ensure
        reader&.kill
        restore
        traps&.each { |signal, handler| trap(signal, handler || "DEFAULT") }
      end

      # @return [Array, nil] the next event; nil if none comes in time.
      def wait(seconds)
        event = @events.pop(timeout: [seconds, 0].max)
        case event&.first
        when :signal then raise SignalException, event.last
        when :suspended then suspend
        else return event
        end
        [:resized]
      end

      # @return [(Integer, Integer)] columns and rows.
      def size
        rows, columns = @output.winsize
        [columns.positive? ? columns : 80, rows.positive? ? rows : 24]
      end

      # @param lines [Array<TopScreen::Line>]
      def draw(lines)
        rows = lines.map.with_index(1) { |line, row| "\e[#{row};1H\e[2K#{STYLES[line.style] unless plain?(line)}#{line.text}\e[0m" }
        @output.write("#{rows.join}\e[J".encode(@encoding, fallback: ->(character) { ASCII.fetch(character, "?") }))
        @output.flush
      end

      private

      # https://no-color.org
      def plain?(line) = line.style == :bad && !ENV["NO_COLOR"].to_s.empty?

      def trap_signals
        handlers = { "WINCH" => [:resized], "TSTP" => [:suspended], **ENDING.to_h { |name| [name, [:signal, name]] } }
        handlers.to_h { |name, event| [name, trap(name) { @events << event }] }
      end

      def enter
        @mode = @input.console_mode
        @input.raw!(intr: true)
        @output.write(ENTER)
        @output.flush
      end

      def restore
        return unless @mode

        @input.console_mode = @mode
        @mode = nil
        @output.write(LEAVE)
        @output.flush
      rescue SystemCallError
        nil # the terminal has gone
      end

      # Ctrl-Z: the shell has the terminal, until it continues this process.
      def suspend
        restore
        Process.kill(:STOP, Process.pid)
        enter
      end

      def read_keys
        loop do
          text = @input.readpartial(64)
          next @events << [:key, ARROWS.fetch(text, "")] if text.start_with?("\e")

          text.each_char { |key| @events << [:key, key] }
        end
      rescue SystemCallError, IOError
        @events << [:key, "q"] # the terminal has gone
      end
    end
  end
end
