# frozen_string_literal: true

module Fairlead
  class CLI
    # The problems of a server, each in a sentence.
    class Findings
      # Shorter waits, in seconds, are no problem.
      SHORT = 0.1
      # Percent of a core from which a worker counts as busy.
      BUSY = 90
      STALLS = {
        "blocked" => "blocks in C without Ruby's lock; a standby serves the others",
        "stuck" => "sleeps in C with Ruby's lock; no other request of this worker runs",
        "computing" => "has computed without a pause"
      }.freeze
      private_constant :SHORT, :BUSY, :STALLS

      def initialize(report)
        @report = report
        @workers = report[:workers]
      end

      def to_a
        [*booting, *overload, *@workers.flat_map { |worker| of(worker) }, *ended, *restart]
      end

      private

      def of(worker) = [suspended(worker), stalled(worker), full(worker), database(worker), queue(worker)].compact

      def booting
        return if @workers.any? { |worker| worker[:state] != "booting" }

        "No worker serves yet." if @workers.any?
      end

      def overload
        often = @report[:total][:turned_away_per_second]
        return unless often.positive?

        "More requests arrive than the workers can serve: #{Humanize.count([often, 1].max)} a second get 503, either at once " \
          "(queue_target) or after a long wait (queue_timeout). Add workers, or make the app faster."
      end

      def suspended(worker)
        "A signal has suspended #{name(worker, "worker")}. Continue it with kill -CONT #{worker[:pid]}." if worker[:suspended]
      end

      def stalled(worker)
        kind, seconds = worker[:stalled]&.values_at(:kind, :seconds)
        return unless kind

        "#{name(worker)}: for #{Humanize.duration(seconds)}, a request #{STALLS.fetch(kind)}. See `fairlead stalls`."
      end

      def full(worker)
        return unless worker[:full]

        "#{name(worker)} has no file descriptors left (ulimit -n): new connections go to other workers, or wait."
      end

      def database(worker)
        waiting = worker[:database][:waiting]
        return unless waiting.positive?

        pool = worker[:pools].max_by { |one| one[:waiting] }
        since = ", the first for #{Humanize.duration(pool[:oldest_wait])}" if pool && pool[:oldest_wait].to_f >= SHORT
        "#{Humanize.plural(waiting, "request")} of #{name(worker, "worker")} #{waiting == 1 ? "waits" : "wait"} for a database " \
          "connection#{since}: #{shortage(worker, pool)}."
      end

      # Under a budget the pool itself has room, up to the whole budget; other workers may have the connections.
      def shortage(worker, pool)
        budget = @report[:limits][:database_connections]
        return "its pool #{pool[:pool]} is full (#{pool[:in_use]} of #{pool[:size]} in use)" if pool && pool[:in_use] >= pool[:size].to_f
        return "its pool #{pool[:pool]} has #{pool[:in_use]} of #{pool[:connections]} in use" if pool && budget.nil?

        "it has #{worker[:database][:open]} of the #{budget} that all workers share (database_connections), and all together have " \
          "#{@report[:total][:database][:open]}"
      end

      def queue(worker)
        return if worker[:queued].zero? || worker[:oldest_wait] < SHORT

        "#{Humanize.plural(worker[:queued], "request")} #{worker[:queued] == 1 ? "waits" : "wait"} for #{name(worker, "worker")}, " \
          "the first for #{Humanize.duration(worker[:oldest_wait])}#{cause(worker)}."
      end

      def cause(worker)
        most = @report[:limits][:in_flight]
        return if worker[:stalled]
        return ": it runs as many requests as it may (#{Humanize.count(most)}, in_flight)" if worker[:in_flight] >= most

        ": it is busy (#{Humanize.percent(worker[:cpu])} of a core)" if worker[:cpu].to_f >= BUSY
      end

      def ended
        @workers.select { |worker| worker[:restarts].positive? && worker[:kind] == "regular" }.map do |worker|
          "#{Humanize.plural(worker[:restarts], "predecessor")} of #{name(worker, "worker")} ended unexpectedly. The log says why."
        end
      end

      def restart
        "New code could not be started: #{@report[:failure].lines.first.strip}" if @report[:failure]
      end

      def name(worker, noun = "Worker") = "#{noun} #{Humanize.worker(worker)} (process #{worker[:pid]})"
    end
  end
end
