# frozen_string_literal: true

module Fairlead
  # The state of all workers as the shared page shows it, for {Fairlead.stats} and `fairlead status`. No worker is asked: the page also
  # has the figures of a stuck one.
  module WorkerStats
    class << self
      # Times are in seconds. Each worker has:
      #
      # - `index:` its number among the workers of its `kind:` (:regular, :relief or :lane), as in the log; `pid:`, `age:`, `state:`
      #   (:booting, :serving, :leaving until it takes no more connections, or :draining);
      # - `stalled:` why one of its reactors stays away, `{ kind:, seconds: }`, or nil. The kind is :blocked (in C, without Ruby's
      #   lock; a standby serves meanwhile), :stuck (asleep in C with Ruby's lock) or :computing;
      # - `connections:` open ones; `full:` whether it has no descriptors for more; `in_flight:` running requests; `streams:` the
      #   long-lived ones among them; `queued:` requests that wait for their turn; `oldest_wait:` how long the first of those has
      #   waited;
      # - since its start, `requests:` answered; `errors:` requests in which the app raised; `refused:` requests answered without the app
      #   (malformed, too large, too many), among them `turned_away:` with 503, because more came than could be served; `timed_out:`
      #   requests past `request_timeout`; `stalls:` reported ones; `standbys:` how often a standby took the lead; `handed:` and
      #   `received:` requests given to and taken from other workers;
      # - `restarts:` how many workers of this number have ended unexpectedly;
      # - `heartbeat_age:` time since its loop last turned, which may be long in an idle worker;
      # - `database:` under a budget (`database_connections`) its `open:` connections, and the requests `waiting:` for one; else
      #   both are 0. For all pools of a process, see {ActiveRecord.stat};
      # - `lane:` requests of routes that stall: `{ dedicated:, waiting:, running:, most:, requests:, waited: }`.
      #
      # `routes:` lists the routes that have stalled, `{ route:, action:, lane:, stalls:, longest: }`, in Rails with their `action`
      # ("articles#show"). Their `lane` is :threads, :process, or :none once they are forgotten.
      def of(page)
        now = Clock.microseconds
        taken = (0...page.slots).select { |slot| page.get(slot, :state).positive? }
        { workers: taken.map { |slot| worker(page.read(slot), now) }, routes: page.routes }
      end

      private

      def worker(row, now)
        {
          **row.slice(:index), kind: kind(row), pid: row[:pid], age: since(row[:began_us], now),
          state: WorkerState::NAMES.fetch(row[:state], :unknown), stalled: stalled(row, now),
          **row.slice(:connections, :in_flight, :streams, :queued), full: full?(row), oldest_wait: since(row[:oldest_us], now),
          **row.slice(:requests, :errors, :refused, :turned_away, :timed_out, :stalls, :standbys, :handed, :received, :restarts),
          heartbeat_age: since(row[:heartbeat_ms] * 1000, now),
          database: { open: row[:database_open], waiting: row[:database_waiting] }, lane: lane(row)
        }
      end

      def kind(row)
        return :lane if row[:lane] == 1

        row[:relief] == 1 ? :relief : :regular
      end

      def full?(row) = row[:state] == WorkerState::SERVING && row[:room].zero?

      def stalled(row, now)
        kind, began = row.values_at(:stalled_kind, :stalled_us)
        kind.zero? || began.zero? ? nil : { kind: StallKind::NAMES.fetch(kind), seconds: since(began, now) }
      end

      def lane(row)
        {
          dedicated: row[:lane] == 1, waiting: row[:lane_waiting], running: row[:lane_running],
          most: row[:lane_max], requests: row[:lane_requests], waited: row[:lane_waited_us] / 1e6
        }
      end

      # @return [Float] 0.0 if it never happened.
      def since(microseconds, now) = microseconds.zero? ? 0.0 : [now - microseconds, 0].max / 1e6
    end
  end
end
