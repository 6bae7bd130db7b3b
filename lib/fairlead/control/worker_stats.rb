# frozen_string_literal: true

module Fairlead
  # What the page of memory that all workers share says of them, for {Fairlead.stats} and `fairlead status`. It is read, and
  # nobody is asked: also a worker that is stuck has its figures there.
  module Figures
    STATES = %i[empty booting serving draining].freeze
    # As the core numbers them.
    STALLS = [nil, :blocked, :stuck, :computing].freeze
    private_constant :STATES, :STALLS

    class << self
      # Times are in seconds.
      #
      # - `index:` its number among those of its `kind:` (:regular, :relief or :lane), as in the log;
      # - `pid:`, `age:`, and its `state:` (:booting, :serving or :draining);
      # - `stalled:` what keeps one of its reactors away, `{ kind:, seconds: }` with the kind :blocked (in C, without Ruby's
      #   lock: a standby serves meanwhile), :stuck (asleep with it) or :computing; nil: nothing does;
      # - `connections:` open, `full:` whether there are no descriptors for more; `in_flight:` requests that run, `streams:`
      #   of them, those that live long; `queued:` requests that wait for their turn, `oldest_wait:` for how long the first
      #   of them does;
      # - since it began, `requests:` answered, `errors:` of them, those that the app let escape; `refused:` answered without
      #   the app (malformed, too large, too many), `turned_away:` of them with 503, since more come than can be served;
      #   `timed_out:` those past `request_timeout`; `stalls:` told of,
      #   `standbys:` how often a standby took the lead, `handed:` and `received:` requests given to and taken from siblings;
      # - `restarts:` how many workers of this number have ended unasked;
      # - `heartbeat_age:` when its loop turned last: if it has nothing to do, that may be long ago;
      # - `database:` under a budget (`database_connections`) what it has of it, `open:`, and the requests `waiting:` for a
      #   connection of it; else both are 0. {ActiveRecord.stat} tells of all pools of the process that asks;
      # - `lane:` requests of routes that stall: `{ dedicated:, waiting:, running:, most:, requests:, waited: }`.
      #
      # `routes:` are those that have stalled, `{ route:, action:, lane:, stalls:, longest: }`: in Rails with their `action`
      # ("articles#show"); their `lane` is :threads, :process, or :none if they have been forgotten.
      #
      # @param page [SharedPage]
      # @return [Hash]
      def of(page)
        now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
        taken = (0...page.slots).select { |slot| page.get(slot, :state).positive? }
        { workers: taken.map { |slot| worker(page.read(slot), now) }, routes: page.routes }
      end

      private

      def worker(row, now)
        {
          **row.slice(:index), kind: kind(row), pid: row[:pid], age: since(row[:began_us], now),
          state: STATES.fetch(row[:state], :unknown), stalled: stalled(row, now),
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

      def full?(row) = STATES[row[:state]] == :serving && row[:room].zero?

      # With `stall_report 0` the core knows only of the reactor that leads.
      def stalled(row, now)
        kind, began = row.values_at(:stalled_kind, :stalled_us)
        kind, began = row.values_at(:stall, :away_us) if began.zero? && SHORT < since(row[:away_us], now)
        kind.zero? || began.zero? ? nil : { kind: STALLS.fetch(kind), seconds: since(began, now) }
      end

      def lane(row)
        {
          dedicated: row[:lane] == 1, waiting: row[:lane_waiting], running: row[:lane_running],
          most: row[:lane_most], requests: row[:lane_requests], waited: row[:lane_waited_us] / 1e6
        }
      end

      # @return [Float] 0.0 if it has not happened.
      def since(microseconds, now) = microseconds.zero? ? 0.0 : [now - microseconds, 0].max / 1e6
    end

    # Shorter than this, in seconds, a reactor's absence is ordinary work.
    SHORT = 0.1
    private_constant :SHORT
  end
end
