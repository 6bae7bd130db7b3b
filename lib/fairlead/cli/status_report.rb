# frozen_string_literal: true

module Fairlead
  class Status
    # What a server has said of itself, with what the system says of its processes, and what has happened since the look
    # before. This is what `fairlead status --json` prints; its keys stay.
    class Report
      # What is summed up over all workers.
      SUMS = %i[connections in_flight streams queued requests requests_per_second errors refused turned_away
                turned_away_per_second timed_out stalls standbys handed received restarts cpu memory].freeze
      DATABASE = %i[open in_use waiting].freeze
      private_constant :SUMS, :DATABASE

      # @return [Float] seconds of the monotonic clock.
      attr_reader :at

      # @param server [Hash] what it says (see Inquiry).
      # @param before [Report, nil] of the same server.
      # @param measure [#call] answers the {Consumption} of a process id.
      def initialize(server, before: nil, at: Process.clock_gettime(Process::CLOCK_MONOTONIC), measure: Consumption.method(:of))
        @server = server
        @status = server[:status]
        @before = before
        @at = at
        @consumption = @status[:workers].to_h { |worker| [worker[:pid], measure.call(worker[:pid])] }
      end

      # @return [Hash] what {Figures.of} says of each worker, and with it
      #
      #   - `version:`, `ruby:`, `yjit:` (nil: only the workers know), `environment:`, `started_at:` (seconds since 1970) and
      #     `generation:` of the code that serves (0: there was no hot restart);
      #   - `pid:` by which the server is known, `folder:`, `tag:`, `addresses:`; `serving:` whether all workers have served;
      #     `failure:` why new code could not be started the last time, or nil;
      #   - `limits:` `{ in_flight:, database_connections: }`, for each worker and for all;
      #   - of each worker `requests_per_second:`, `turned_away_per_second:` and `cpu:` (percent of one core) since the look before, which was
      #     `seconds:` ago, or since the worker began; `memory:` (bytes, with its part of what it shares); `suspended:`.
      #     nil: it is not known;
      #   - of each worker `pools:` what {ActiveRecord.stat} says of each of its pools, but for who holds the connections,
      #     `pools_age:` seconds ago (nil: it has not said so yet); and in its `database:` with `open:` and `waiting:` how many
      #     are `in_use:`;
      #   - `total:` their sums, and the longest `oldest_wait:`;
      #   - `matters:` in words, what is the matter.
      def to_h
        @to_h ||= begin
          all = { **facts, workers:, total:, routes: @status[:routes] }
          { **all, matters: Matters.new(all).to_a }
        end
      end

      # @param pid [Integer]
      # @return [Hash, nil] what was said of this worker.
      def said_of(pid) = @status[:workers].find { |worker| worker[:pid] == pid }

      # @return [Consumption, nil]
      def consumption_of(pid) = @consumption[pid]

      private

      def facts
        {
          **@server.slice(:pid, :folder, :tag, :addresses),
          **@status.slice(:version, :ruby, :yjit, :environment, :started_at),
          generation: @server[:restarts][:generation], serving: @server[:restarts][:serving],
          failure: @server[:restarts][:failure], limits: @status[:limits], seconds: @before && (@at - @before.at)
        }
      end

      def workers
        @workers ||= @status[:workers].sort_by { |worker| place(worker) }.map { |worker| { **worker, **measured(worker) } }
      end

      # A successor comes after its predecessor.
      def place(worker) = [worker[:kind] == "regular" ? 0 : 1, worker[:kind], worker[:index], -worker[:age]]

      def measured(worker)
        earlier = @before&.said_of(worker[:pid])
        seconds = earlier ? @at - @before.at : worker[:age]
        used = @consumption[worker[:pid]]
        used_before = earlier ? @before.consumption_of(worker[:pid])&.cpu : 0.0
        {
          requests_per_second: rate(since(:requests, worker, earlier), seconds),
          turned_away_per_second: rate(since(:turned_away, worker, earlier), seconds),
          cpu: used && used_before && rate((used.cpu - used_before) * 100, seconds),
          memory: used&.memory, suspended: used&.suspended, database: database(worker)
        }
      end

      # The budget of all workers counts room for a connection, too, and what it shows is of this moment.
      def database(worker)
        pools = worker[:pools]
        shown = worker[:database]
        return { **shown, in_use: nil } unless worker[:pools_age]

        open = pools.sum { |pool| pool[:connections] }
        waiting = pools.sum { |pool| pool[:waiting] }
        { open: [open, shown[:open]].max, in_use: pools.sum { |pool| pool[:in_use] }, waiting: [waiting, shown[:waiting]].max }
      end

      # Of a server of an older version some is not known.
      def since(key, now, earlier) = now[key].to_i - (earlier ? earlier[key].to_i : 0)

      def rate(count, seconds) = seconds.positive? ? (count / seconds).round(1) : 0.0

      def total
        { **SUMS.to_h { |key| [key, workers.filter_map { |worker| worker[key] }.sum] },
          oldest_wait: workers.map { |worker| worker[:oldest_wait] }.max.to_f,
          database: DATABASE.to_h { |key| [key, workers.filter_map { |worker| worker[:database][key] }.sum] } }
      end
    end
  end
end
