# frozen_string_literal: true

module Fairlead
  class CLI
    # A status report as text for people.
    class StatusTable
      # @!attribute left [Boolean] whether it is text, aligned to the left.
      # @!attribute rare [#call, nil] whether a worker has something to show here; the column appears once one does. nil: always.
      # @!attribute summed [Boolean] whether the last row has a total.
      # @!attribute write [#call] takes a worker, or the total, and returns the cell.
      Column = Data.define(:title, :left, :rare, :summed, :write)

      def self.column(title, left: false, rare: nil, summed: true, &write) = Column.new(title:, left:, rare:, summed:, write:)

      def self.number(title, key, **options) = column(title, **options) { |row| Humanize.count(row[key]) }

      def self.rare(title, key) = number(title, key, rare: ->(worker) { worker[key].to_i.positive? })

      def self.state(worker)
        return "suspended" if worker[:suspended]
        return worker[:state] unless worker[:stalled]

        "#{worker[:stalled][:kind]} #{Humanize.duration(worker[:stalled][:seconds])}"
      end

      # @return [String] "3 of 5, 12 wait"
      def self.database(row)
        in_use, open, waiting = row[:database].values_at(:in_use, :open, :waiting)
        "#{Humanize.count(in_use)} of #{Humanize.count(open)}#{", #{Humanize.count(waiting)} wait" if waiting.positive?}"
      end

      COLUMNS = [
        column("worker", left: true, summed: false) { |row| Humanize.worker(row) },
        column("process", summed: false) { |row| row[:pid].to_s },
        column("age", summed: false) { |row| Humanize.duration(row[:age]) },
        column("state", left: true, summed: false) { |row| state(row) },
        number("connections", :connections),
        rare("streams", :streams),
        number("running", :in_flight),
        number("waiting", :queued),
        column("longest") { |row| row[:oldest_wait].zero? ? "-" : Humanize.duration(row[:oldest_wait]) },
        number("requests", :requests),
        number("per second", :requests_per_second),
        column("CPU") { |row| Humanize.percent(row[:cpu]) },
        column("memory") { |row| Humanize.memory(row[:memory]) },
        column("database", rare: ->(worker) { worker[:database].values.compact.any?(&:positive?) }) { |row| database(row) },
        rare("errors", :errors),
        rare("refused", :refused),
        rare("turned away", :turned_away),
        rare("stalls", :stalls),
        rare("standbys", :standbys),
        rare("given", :handed),
        rare("taken", :received)
      ].freeze
      private_constant :Column, :COLUMNS
      private_class_method :column, :number, :rare, :state, :database

      # @param report [Hash] see {StatusReport#to_h}
      # @param width [Integer, nil] that no line exceeds; nil: any width
      def initialize(report, width: nil)
        @report = report
        @width = width
        @workers = report[:workers]
      end

      def to_s = [*folded(heading, facts), "", *tables, "", *folded(*findings), ""].join("\n")

      private

      def heading
        version, folder, pid, addresses = @report.values_at(:version, :folder, :pid, :addresses)
        "Fairlead #{version} in #{folder}, process #{pid}, #{addresses.join(" ")}"
      end

      def facts
        started = Time.at(@report[:started_at])
        [
          "since #{started.strftime("%F %T")} (#{Humanize.duration(Time.now - started)})",
          "Ruby #{@report[:ruby]}#{" with YJIT" if @report[:yjit]}", @report[:environment],
          *("hot restart #{@report[:generation]}" if @report[:generation].positive?),
          *("starting" unless @report[:serving]), *certificates
        ].join(", ")
      end

      def certificates
        @report[:certificates].map { |one| "certificate for #{one[:name]} until #{Time.at(one[:expires_at]).strftime("%F")}" }
      end

      def findings = @report[:matters].empty? ? ["No problems."] : @report[:matters]

      # Several tables below each other, each beginning with the worker, if one is too wide.
      def tables
        first, *others = COLUMNS.select { |column| column.rare.nil? || @workers.any? { |worker| column.rare.call(worker) } }
        parts = others.each_with_object([[first]]) do |column, all|
          wider = [*all.last, column]
          all << [first] if @width && wider.size > 2 && lines(wider).map(&:size).max > @width
          all.last << column
        end
        parts.flat_map { |columns| ["", *lines(columns)] }.drop(1)
      end

      def lines(columns)
        rows = [columns.map(&:title), *@workers.map { |worker| columns.map { |column| column.write.call(worker) } }]
        rows << columns.map.with_index { |column, index| sum(column, index) } if @workers.size > 1
        Humanize.table(rows, columns.map(&:left))
      end

      def sum(column, index)
        return column.write.call(@report[:total]) if column.summed

        index.zero? ? "all" : ""
      end

      # Breaks long lines, at spaces where there are any.
      def folded(*lines)
        return lines unless @width

        lines.flat_map { |line| line.gsub(/(.{1,#{@width}})(?: +|\z)/, "\\1\n").lines(chomp: true) }
      end
    end
  end
end
