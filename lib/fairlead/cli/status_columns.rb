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
        Column.new(title:, left:, rare:, summed:, write:)
      end

      def self.number(title, key, **options) = column(title, **options) { |row| Words.count(row[key]) }

      # One that is there once there is something to show.
      def self.event(title, key) = number(title, key, rare: ->(worker) { worker[key].to_i.positive? })

      # What keeps it from serving goes before.
      STATE = lambda do |worker|
        next "suspended" if worker[:suspended]
        next worker[:state] unless worker[:stalled]

        "#{worker[:stalled][:kind]} #{Words.duration(worker[:stalled][:seconds])}"
      end

      # "3 of 5, 12 wait"
      DATABASE = lambda do |row|
        in_use, open, waiting = row[:database].values_at(:in_use, :open, :waiting)
        "#{Words.count(in_use)} of #{Words.count(open)}#{", #{Words.count(waiting)} wait" if waiting.positive?}"
      end

      ALL = [
        column("worker", left: true, summed: false) { |row| Words.worker(row) },
        column("process", summed: false) { |row| row[:pid].to_s },
        column("age", summed: false) { |row| Words.duration(row[:age]) },
        column("state", left: true, summed: false, &STATE),
        number("connections", :connections),
        event("streams", :streams),
        number("running", :in_flight),
        number("waiting", :queued),
        column("longest") { |row| row[:oldest_wait].zero? ? "-" : Words.duration(row[:oldest_wait]) },
        number("requests", :requests),
        number("per second", :requests_per_second),
        column("CPU") { |row| Words.percent(row[:cpu]) },
        column("memory") { |row| Words.memory(row[:memory]) },
        column("database", rare: ->(worker) { worker[:database].values.compact.any?(&:positive?) }, &DATABASE),
        event("errors", :errors),
        event("refused", :refused),
        event("turned away", :turned_away),
        event("stalls", :stalls),
        event("standbys", :standbys),
        event("given", :handed),
        event("taken", :received)
      ].freeze
      private_constant :STATE, :DATABASE
      private_class_method :column, :number, :event
    end
  end
end
