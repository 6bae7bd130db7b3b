# frozen_string_literal: true

module Fairlead
  class Status
    # What is the matter with a server, in words: a sentence for each thing that a person would want to know of.
    class Matters
      # A wait that is shorter, in seconds, is none.
      SHORT = 0.1
      # Percent of a core from which on a worker does nothing but compute.
      ALL = 90
      STALLS = {
        "blocked" => "is in a call that blocks, without Ruby's lock: a standby serves the others",
        "stuck" => "sleeps in a call that holds Ruby's lock: no other request of this worker runs",
        "computing" => "computes without a pause"
      }.freeze
      private_constant :SHORT, :ALL, :STALLS

      # @param report [Hash] see {Report#to_h}.
      def initialize(report)
        @report = report
        @workers = report[:workers]
      end

      # @return [Array<String>]
      def to_a
        [*booting, *overload, *@workers.flat_map { |worker| of(worker) }, *ended, *restart]
      end

      private

      def of(worker) = [suspended(worker), stalled(worker), full(worker), database(worker), line(worker)].compact

      def booting
        return if @workers.any? { |worker| worker[:state] != "booting" }

        "No worker serves yet." if @workers.any?
      end

      def overload
        often = @report[:total][:turned_away_per_second]
        return unless often.positive?

        "More requests come than can be served: #{Words.count([often, 1].max)} a second are answered 503 at once, those that come " \
          "last (queue_target), or when they have waited for too long (queue_timeout). More workers, or faster answers, would help."
      end

      def suspended(worker)
        "#{name(worker)} has been suspended by a signal: kill -CONT #{worker[:pid]} has it go on." if worker[:suspended]
      end

      def stalled(worker)
        kind, seconds = worker[:stalled]&.values_at(:kind, :seconds)
        return unless kind

        "#{name(worker)}: for #{Words.duration(seconds)} a request #{STALLS.fetch(kind)}. `fairlead stalls` names what " \
          "has stalled."
      end

      def full(worker)
        return unless worker[:full]

        "#{name(worker)} has no descriptors for more connections (ulimit -n): they go to others that have, or wait."
      end

      def database(worker)
        waiting = worker[:database][:waiting]
        return unless waiting.positive?

        pool = worker[:pools].max_by { |one| one[:waiting] }
        since = ", the first for #{Words.duration(pool[:oldest_wait])}" if pool && pool[:oldest_wait].to_f >= SHORT
        "#{Words.plural(waiting, "request")} of #{name(worker, "worker")} #{waiting == 1 ? "waits" : "wait"} for a database " \
          "connection#{since}: #{shortage(worker, pool)}."
      end

      # In a pool whose size is the budget there is room; what there is of that, others may have.
      def shortage(worker, pool)
        budget = @report[:limits][:database_connections]
        return "its pool #{pool[:pool]} is full (#{pool[:in_use]} of #{pool[:size]} in use)" if pool && pool[:in_use] >= pool[:size].to_f
        return "its pool #{pool[:pool]} has #{pool[:in_use]} of #{pool[:connections]} in use" if pool && budget.nil?

        "it has #{worker[:database][:open]}, and all workers #{@report[:total][:database][:open]} of the #{budget} that they " \
          "share (database_connections)"
      end

      def line(worker)
        return if worker[:queued].zero? || worker[:oldest_wait] < SHORT

        "A line of #{Words.count(worker[:queued])} waits on #{name(worker, "worker")}, the first for " \
          "#{Words.duration(worker[:oldest_wait])}#{cause(worker)}."
      end

      def cause(worker)
        most = @report[:limits][:in_flight]
        return if worker[:stalled]
        return ": as many requests run in it as may (#{Words.count(most)}, in_flight)" if worker[:in_flight] >= most

        ": it computes all the time (#{Words.percent(worker[:cpu])} of a core)" if worker[:cpu].to_f >= ALL
      end

      def ended
        @workers.select { |worker| worker[:restarts].positive? && worker[:kind] == "regular" }.map do |worker|
          "Before #{name(worker, "worker")}, #{Words.plural(worker[:restarts], "worker")} of its number " \
            "ended unasked: the log says how."
        end
      end

      def restart
        "New code could not be started: #{@report[:failure].lines.first.strip}" if @report[:failure]
      end

      def name(worker, noun = "Worker") = "#{noun} #{Words.worker(worker)} (process #{worker[:pid]})"
    end
  end
end
