# frozen_string_literal: true

module Fairlead
  class Status
    # A report as text for people.
    class Table
      GAP = "  "
      private_constant :GAP

      # @param report [Hash] see {Report#to_h}.
      # @param width [Integer, nil] that no line shall exceed; nil: whatever it takes.
      def initialize(report, width: nil)
        @report = report
        @width = width
        @workers = report[:workers]
      end

      # @return [String]
      def to_s = [*folded(heading, facts), "", *rows, "", *folded(*matters), ""].join("\n")

      private

      def heading
        version, folder, pid, addresses = @report.values_at(:version, :folder, :pid, :addresses)
        "Fairlead #{version} in #{folder}, process #{pid}, #{addresses.join(" ")}"
      end

      def facts
        started = Time.at(@report[:started_at])
        [
          "since #{started.strftime("%F %T")} (#{Words.duration(Time.now - started)})",
          "Ruby #{@report[:ruby]}#{" with YJIT" if @report[:yjit]}", @report[:environment],
          *("hot restart #{@report[:generation]}" if @report[:generation].positive?),
          *("starting" unless @report[:serving])
        ].join(", ")
      end

      def matters = @report[:matters].empty? ? ["Nothing is the matter."] : @report[:matters]

      def rows
        lines = [columns.map(&:title), *@workers.map { |worker| columns.map { |column| column.write.call(worker) } }]
        lines << columns.map.with_index { |column, index| sum(column, index) } if @workers.size > 1
        widths = lines.transpose.map { |cells| cells.map(&:size).max }
        tables = parts(widths).map { |part| lines.map { |cells| line(cells, widths, part) } }
        tables.drop(1).inject(tables.first) { |above, table| above + [""] + table }
      end

      # Where they are too many for a line, there are several tables below each other, each with the worker first.
      #
      # @return [Array<Array<Integer>>] which columns are in each.
      def parts(widths)
        first, *others = widths.each_index.to_a
        others.each_with_object([[first]]) do |index, parts|
          row = [*parts.last, index]
          parts << [first] if @width && row.size > 2 && row.sum { |one| widths[one] } + (GAP.size * (row.size - 1)) > @width
          parts.last << index
        end
      end

      def line(cells, widths, part)
        fitted = part.map { |index| columns[index].left ? cells[index].ljust(widths[index]) : cells[index].rjust(widths[index]) }
        fitted.join(GAP).rstrip
      end

      # At spaces, where there are some.
      def folded(*lines)
        return lines unless @width

        lines.flat_map { |line| line.gsub(/(.{1,#{@width}})(?: +|\z)/, "\\1\n").lines(chomp: true) }
      end

      def sum(column, index)
        return column.write.call(@report[:total]) if column.summed

        index.zero? ? "all" : ""
      end

      def columns
        @columns ||= Columns::ALL.select { |column| column.rare.nil? || @workers.any? { |worker| column.rare.call(worker) } }
      end
    end
  end
end
