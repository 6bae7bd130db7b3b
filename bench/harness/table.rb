# frozen_string_literal: true

require_relative "number"

module Bench
  # A comparison as a table for people. Figures are medians; in parentheses the smallest and the largest of all
  # rounds. Errors are sums over all rounds.
  class Table
    # Title, figure, decimals, and whether the range is shown.
    Column = Data.define(:title, :figure, :decimals, :range)

    MAIN = {
      requests_per_second: Column.new("requests/s", :requests_per_second, 0, true),
      pages_per_second: Column.new("pages/s", :pages_per_second, 1, true),
      extra_memory: Column.new("extra MB", :extra_memory, 1, true),
      slowest: Column.new("slowest ms", :slowest, 0, true),
      p99: Column.new("p99 ms", :p99, 2, true)
    }.freeze
    COMMON = [
      Column.new("requests/s", :requests_per_second, 1, false),
      Column.new("rate/s", :rate, 0, false),
      Column.new("capacity moved", :drift, 2, true),
      Column.new("handed/request", :handed, 3, true),
      Column.new("KB each", :kilobytes_each, 2, true),
      Column.new("suspended", :suspended, 0, true),
      Column.new("resumed", :resumed, 2, false),
      Column.new("others ms", :elsewhere, 0, true),
      Column.new("503", :refused, 0, true),
      Column.new("503 p99 ms", :refused_p99, 1, false),
      Column.new("after 1 s", :refused_later_p99, 1, false),
      Column.new("bare 503", :bare, 0, true),
      Column.new("gave up", :gave_up, 0, true),
      Column.new("slow for ms after", :recovered, 0, true),
      Column.new("p99 alone", :alone_p99, 2, false),
      Column.new("× alone", :slowdown, 2, true),
      Column.new("pages kept", :kept, 2, true),
      Column.new("streams", :streams, 0, false),
      Column.new("tokens/s", :tokens_per_second, 0, false),
      Column.new("gap p99 ms", :gap_p99, 0, true),
      Column.new("gap max ms", :gap_max, 0, false),
      Column.new("fastest ÷ slowest", :rate_spread, 2, true),
      Column.new("delay p99 ms", :delay_p99, 0, false),
      Column.new("new ÷ busy", :new_to_kept, 2, true),
      Column.new("busy p50 ms", :kept_p50, 2, false),
      Column.new("busy p99 ms", :kept_p99, 2, false),
      Column.new("KB a page", :page_kilobytes, 0, false),
      Column.new("HTTP", :http, 0, false),
      Column.new("p50 ms", :p50, 2, false),
      Column.new("p99 ms", :p99, 2, true),
      Column.new("p99.9 ms", :p999, 2, false),
      Column.new("max ms", :max, 1, false),
      Column.new("cores", :cores, 2, false),
      Column.new("CPU µs/request", :cpu_per_request, 1, true),
      Column.new("peak RSS MB", :peak_rss, 0, false),
      Column.new("PSS MB", :pss, 0, false)
    ].freeze
    # Summed over the rounds.
    COUNTS = { "errors" => :errors, "non-2xx" => :non_2xx, "closed" => :closed_by_server }.freeze
    private_constant :Column, :MAIN, :COMMON, :COUNTS

    # @param comparison [Comparison]
    # @param main [Symbol] the figure that is compared.
    def initialize(comparison, main:)
      @comparison = comparison
      @main = main
      @columns = [MAIN.fetch(main), *COMMON].uniq(&:figure).select do |column|
        comparison.runs.any? { |run| run[column.figure] }
      end
      closed = comparison.servers.any? { |server| comparison.total(server, :closed_by_server).positive? }
      @counts = closed ? COUNTS : COUNTS.except("closed")
    end

    # @return [String] with a line end.
    def to_s
      rows = [header, *@comparison.servers.map { |server| row(server) }]
      widths = rows.transpose.map { |cells| cells.map(&:length).max }
      rows.map do |cells|
        name, *figures = cells.zip(widths)
        line = [name[0].ljust(name[1]), *figures.map { |cell, width| cell.rjust(width) }]
        "#{line.join("  ").rstrip}\n"
      end.join
    end

    private

    def header
      main, *others = @columns.map(&:title)
      ["", main || "result", "#{@comparison.reference} ÷ it", *others, *@counts.keys]
    end

    def row(server)
      main, *others = @columns.map { |column| cell(server, column) }
      # A failed run is never a silent gap.
      failed = @comparison.failures(server).size
      main = [main, ("#{failed} failed" if failed.positive?)].compact.join(", ")
      [server, main, ratio(server), *others, *@counts.values.map { |figure| count(server, figure) }]
    end

    def ratio(server)
      return "—" if server == @comparison.reference

      summary = @comparison.ratio(server, @main) or return "—"
      "#{number(summary.median, 2)}#{range(summary, 2)}"
    end

    def cell(server, column)
      summary = @comparison.summary(server, column.figure) or return "—"
      "#{number(summary.median, column.decimals)}#{range(summary, column.decimals) if column.range}"
    end

    def count(server, figure) = number(@comparison.total(server, figure), 0)

    def range(summary, decimals)
      return "" if summary.count < 2

      " (#{number(summary.minimum, decimals)}–#{number(summary.maximum, decimals)})"
    end

    def number(...) = Number.text(...)
  end
end
