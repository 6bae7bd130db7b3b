# frozen_string_literal: true

module Fairlead
  # Numbers as text for people.
  module Humanize
    module_function

    # @return [String] "1,234"; "-" for nil
    def count(number) = number ? number.round.to_s.gsub(/(?<=\d)(?=(\d{3})+\z)/, ",") : "-"

    # @return [String] "0.12 s", "12 s", "3 min", "5 h", "6 d"
    def duration(seconds)
      case seconds
      when ...10 then format("%.2g s", seconds)
      when ...100 then "#{seconds.round} s"
      when ...(100 * 60) then "#{(seconds / 60).round} min"
      when ...(72 * 3600) then "#{(seconds / 3600).round} h"
      else "#{(seconds / 86_400).round} d"
      end
    end

    # @return [String] "0.25 ms", "75 ms", "1.2 s"
    def latency(seconds)
      return duration(seconds) if seconds >= 0.9995

      milliseconds = seconds * 1000
      "#{milliseconds < 9.95 ? format("%.2g", milliseconds) : milliseconds.round} ms"
    end

    def memory(bytes) = bytes ? "#{count(bytes / 1_048_576.0)} MiB" : "-"

    def percent(percent) = percent ? "#{percent.round} %" : "-"

    # @return [String] "1 request", "2 requests"
    def plural(number, noun) = "#{count(number)} #{noun}#{"s" unless number == 1}"

    # @return [String] "2", "relief 0"
    def worker(worker) = worker[:kind] == "regular" ? worker[:index].to_s : "#{worker[:kind]} #{worker[:index]}"

    # @param left [Array<Boolean>] for each column, whether it is aligned to the left
    def table(rows, left)
      widths = rows.transpose.map { |cells| cells.map(&:size).max }
      rows.map do |cells|
        cells.map.with_index { |cell, index| left[index] ? cell.ljust(widths[index]) : cell.rjust(widths[index]) }.join("  ").rstrip
      end
    end
  end
end
