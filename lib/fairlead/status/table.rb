# frozen_string_literal: true

module Fairlead
  class Status
    # A report as text for people.
    class Table
      # @param report [Hash] see {Report#to_h}.
      def initialize(report)
        @report = report
        @workers = report[:workers]
      end

      # @return [String]
      def to_s = [heading, facts, "", *rows, "", *matters, ""].join("\n")

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
        lines.map { |cells| line(cells, widths) }
      end

      def line(cells, widths)
        fitted = columns.zip(cells, widths).map { |column, cell, width| column.left ? cell.ljust(width) : cell.rjust(width) }
        fitted.join("  ").rstrip
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
