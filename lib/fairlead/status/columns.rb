# frozen_string_literal: true

module Fairlead
  class Status
    # The columns of the table: what is above, how it is written for a worker, and for all of them together.
    module Columns
      # @!attribute title [String]
      # @!attribute left [Boolean] whether it is text.
      # @!attribute rare [#call, nil] whether this worker has something to show there; nil: it is always shown.
      # @!attribute write [#call] is given a worker, or the total.
      # @!attribute summed [Boolean] whether it is shown for all together.
      Column = Data.define(:title, :left, :rare, :summed, :write)

      def self.column(title, left: false, rare: nil, summed: true, &write)
        Column.new(title:, left:, rare: rare && ->(worker) { worker[rare].positive? }, summed:, write:)
      end

      def self.number(title, key, **options) = column(title, **options) { |row| Words.count(row[key]) }

      # What keeps it from serving goes before.
      STATE = lambda do |worker|
        next "suspended" if worker[:suspended]
        next worker[:state] unless worker[:stalled]

        "#{worker[:stalled][:kind]} #{Words.duration(worker[:stalled][:seconds])}"
      end

      ALL = [
        column("worker", left: true, summed: false) { |row| Words.worker(row) },
        column("process", summed: false) { |row| row[:pid].to_s },
        column("age", summed: false) { |row| Words.duration(row[:age]) },
        column("state", left: true, summed: false, &STATE),
        number("connections", :connections),
        number("streams", :streams, rare: :streams),
        number("running", :in_flight),
        number("waiting", :queued),
        column("longest") { |row| row[:oldest_wait].zero? ? "-" : Words.duration(row[:oldest_wait]) },
        number("requests", :requests),
        number("per second", :requests_per_second),
        column("CPU") { |row| Words.percent(row[:cpu]) },
        column("memory") { |row| Words.memory(row[:memory]) },
        number("errors", :errors, rare: :errors),
        number("refused", :refused, rare: :refused),
        number("stalls", :stalls, rare: :stalls),
        number("standbys", :standbys, rare: :standbys),
        number("given", :handed, rare: :handed),
        number("taken", :received, rare: :received)
      ].freeze
      private_constant :STATE
      private_class_method :column, :number
    end
  end
end
