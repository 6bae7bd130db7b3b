# frozen_string_literal: true

module Fairlead
  class CLI
    # The tables of `fairlead top`: of each view its title, rows and columns.
    module TopTables
      # Seconds from which a request stands out.
      LONG = 10
      private_constant :LONG

      # @!attribute rank [Integer] a column of a higher rank goes first where the terminal is narrow.
      # @!attribute left [Boolean] whether it is text, aligned to the left.
      # @!attribute rest [Boolean] whether it takes the columns that the others leave.
      # @!attribute key [#call, nil] what the table may be sorted by, largest first; nil: not by this.
      # @!attribute write [#call] returns a row's cell.
      Column = Data.define(:title, :rank, :left, :rest, :key, :write)
      # @!attribute rows [#call] returns the rows of a snapshot.
      # @!attribute bad [#call] returns whether a row is in trouble.
      # @!attribute empty [String] what is said if there are no rows.
      Table = Data.define(:key, :title, :rows, :bad, :empty, :columns)

      def self.text(title, rank, rest: false, key: nil, &write) = Column.new(title:, rank:, left: true, rest:, key:, write:)

      def self.figure(title, rank, key, &write)
        Column.new(title:, rank:, left: false, rest: false, key:, write: write || ->(row) { Humanize.count(key.call(row)) })
      end

      def self.count(title, rank, key) = figure(title, rank, ->(row) { row[key] })

      def self.seconds(title, rank, key)
        figure(title, rank, ->(row) { row[key] }) { |row| row[key].to_f.zero? ? "-" : Humanize.duration(row[key]) }
      end

      def self.latency(title, rank, key)
        figure(title, rank, ->(row) { row[key] }) { |row| row[key] ? Humanize.latency(row[key]) : "-" }
      end

      # A rate of less than ten keeps a digit.
      def self.rate(title, rank, key)
        figure(title, rank, ->(row) { row[key] }) do |row|
          row[key].zero? || row[key] >= 9.95 ? Humanize.count(row[key]) : format("%.1f", row[key])
        end
      end

      def self.state(worker)
        return "suspended" if worker[:suspended]

        stalled = worker[:stalled] or return worker[:state]
        "#{stalled[:kind]} #{Humanize.duration(stalled[:seconds])}"
      end

      # The pools of all workers, by name.
      def self.pools(snapshot)
        all = snapshot[:workers].flat_map { |worker| worker[:pools] }
        all.group_by { |pool| pool_name(pool) }.map do |name, pools|
          { name:, oldest_wait: pools.map { |pool| pool[:oldest_wait].to_f }.max,
            **%i[size connections in_use waiting timeouts].to_h { |key| [key, pools.sum { |pool| pool[key].to_f }] } }
        end
      end

      def self.pool_name(pool)
        [pool[:pool], *(pool[:role] unless pool[:role] == "writing"), *(pool[:shard] unless pool[:shard] == "default")].join(" ")
      end

      def self.subject(stall)
        return "#{stall[:action] || stall[:route]}" if stall[:route]

        stall[:thread] ? "thread #{stall[:thread]}" : "outside of a request"
      end

      # @return [String] the kinds that take most of the time, "database 61 %, cpu 30 %".
      def self.kinds(kinds, most = 3)
        sum = kinds.values.sum
        return "-" unless sum.positive?

        parts = kinds.reject { |_, time| time < sum / 200 }.max_by(most) { |_, time| time }
        parts.map { |kind, time| "#{kind} #{Humanize.percent(time * 100 / sum)}" }.join(", ")
      end
      private_class_method :text, :figure, :count, :seconds, :latency, :rate, :state, :pools, :pool_name, :subject

      WORKERS = Table.new(
        key: "w", title: "workers", rows: ->(snapshot) { snapshot[:workers] },
        bad: ->(worker) { worker[:stalled] || worker[:suspended] || worker[:full] }, empty: "No worker runs.",
        columns: [
          text("worker", 0) { |worker| Humanize.worker(worker) },
          count("process", 10, :pid).with(key: nil, write: ->(worker) { worker[:pid].to_s }),
          text("state", 1) { |worker| state(worker) },
          count("run", 2, :in_flight), count("wait", 3, :queued), seconds("longest", 8, :oldest_wait),
          count("req/s", 4, :requests_per_second),
          figure("CPU", 5, ->(worker) { worker[:cpu] }) { |worker| Humanize.percent(worker[:cpu]) },
          figure("memory", 6, ->(worker) { worker[:memory] }) { |worker| Humanize.memory(worker[:memory]) },
          count("open", 7, :connections), count("streams", 13, :streams), count("requests", 9, :requests),
          count("errors", 11, :errors), count("refused", 14, :refused), count("stalls", 12, :stalls), count("restarts", 15, :restarts)
        ]
      )
      POOLS = Table.new(
        key: "d", title: "database pools", rows: method(:pools), bad: ->(pool) { pool[:waiting].positive? },
        empty: "No worker has reported a database pool.",
        columns: [
          text("pool", 0, rest: true) { |pool| pool[:name] },
          count("in use", 1, :in_use), count("open", 3, :connections), count("size", 4, :size),
          count("waiting", 2, :waiting), seconds("longest", 5, :oldest_wait), count("timeouts", 6, :timeouts)
        ]
      )
      STALLS = Table.new(
        key: "t", title: "stalls", rows: ->(snapshot) { snapshot[:stalls] }, bad: ->(_) { false },
        empty: "Nothing has stalled. `fairlead stalls` has more about each stall.",
        columns: [
          seconds("longest", 0, :seconds), count("times", 2, :count), seconds("together", 4, :total),
          text("why", 3) { |stall| stall[:kind] },
          text("request", 1, rest: true) { |stall| subject(stall) }, text("at", 5) { |stall| stall[:at].to_s }
        ]
      )

      ROUTES = Table.new(
        key: "r", title: "routes", rows: ->(snapshot) { snapshot.dig(:times, :routes) || [] }, bad: ->(route) { route[:errors].positive? },
        empty: "No request has ended.",
        columns: [
          text("route", 0, rest: true) { |route| route[:route] },
          rate("req/s", 1, :requests), latency("p50", 4, :p50), latency("p99", 2, :p99), rate("errors/s", 5, :errors),
          figure("at once", 3, ->(route) { route[:kinds].values.sum }) { |route| format("%.2g", route[:kinds].values.sum) },
          count("requests", 6, :count), text("time", 7) { |route| kinds(route[:kinds], 2) }
        ]
      )

      FLIGHT = Table.new(
        key: "f", title: "in flight", rows: ->(snapshot) { snapshot[:requests] || [] },
        bad: ->(request) { request[:age] >= LONG }, empty: "No request runs.",
        columns: [
          latency("age", 0, :age), text("request", 1, rest: true) { |request| "#{request[:method]} #{request[:path]}" },
          text("now", 2) { |request| request[:waits_for].to_s }, text("at", 4) { |request| request[:detail].to_s },
          text("worker", 3) { |request| request[:worker].to_s }, text("route", 5) { |request| request[:route].to_s }
        ]
      )

      # By the names of the views.
      ALL = { workers: WORKERS, flight: FLIGHT, routes: ROUTES, pools: POOLS, stalls: STALLS }.freeze
    end
  end
end
