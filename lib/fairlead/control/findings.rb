# frozen_string_literal: true

module Fairlead
  # The problems of a server, each in a sentence with its remedy, for `fairlead status`, `fairlead top` and the dashboard.
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
    # Seconds for which a request may block or compute, since others go on meanwhile.
    LONG = 1.0
    DAY = 86_400
    # Days before its end from which a certificate is a problem.
    EXPIRES_SOON = 14
    # Parts of a limit from which it is nearly reached. The server leaves the app an eighth of its descriptors at most.
    DESCRIPTORS = 0.8
    MEMORY = 0.9
    private_constant :LONG, :SHORT, :BUSY, :STALLS, :DAY, :EXPIRES_SOON, :DESCRIPTORS, :MEMORY

    # @param now [Float] seconds since 1970.
    def initialize(report, now: Time.now.to_f)
      @report = report
      @now = now
      @workers = report[:workers]
    end

    def to_a
      [*booting, *overload, *memory, *@workers.flat_map { |worker| of(worker) }, *ended, *restart, *@report[:problems], *certificates]
    end

    private

    def of(worker) = [suspended(worker), stalled(worker), descriptors(worker), grown(worker), database(worker), queue(worker)].compact

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
      return unless kind && seconds >= (kind == "stuck" ? SHORT : LONG)

      "#{name(worker)}: for #{Humanize.duration(seconds)}, a request #{STALLS.fetch(kind)}. See `fairlead stalls`."
    end

    def descriptors(worker)
      return "#{name(worker)} has no file descriptors left (ulimit -n): new connections go to other workers, or wait." if worker[:full]

      open, limit = worker[:descriptors]&.values_at(:open, :limit)
      return unless open && open >= limit * DESCRIPTORS

      "#{name(worker)} has #{Humanize.count(open)} of #{Humanize.plural(limit, "file descriptor")} open (ulimit -n), " \
        "#{Humanize.count(worker[:connections])} of them for clients. Raise the limit, or find what the app leaves open."
    end

    def memory
      used, limit = @report[:memory_limit]&.values_at(:used, :limit)
      return unless used && used >= limit * MEMORY

      "Memory runs out: #{Humanize.memory(used)} of the #{Humanize.memory(limit)} are used that the system allows (cgroup), and beyond " \
        "that it ends processes. Raise the limit, run fewer workers, or have those replaced that grow (recycle_memory)."
    end

    def grown(worker)
      limit = @report[:limits][:recycle_memory]
      return unless limit && worker[:memory].to_i >= limit * MEMORY && worker[:kind] != "relief"

      "#{name(worker)} takes #{Humanize.memory(worker[:memory])} of #{Humanize.memory(limit)} (recycle_memory): it is to be replaced. " \
        "If that comes often, raise the limit, or find what grows."
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

    def certificates
      problems = @report[:certificates].filter_map { |one| one[:problem] }.uniq
      renewals = @report[:certificates].map { |one| one[:renewal].to_s }.reject(&:empty?)
      [*renewals, *problems.map { |problem| "A new certificate cannot be used, and the one before it stays: #{problem} Replace the file." },
       *@report[:certificates].filter_map { |one| expiry(one) }]
    end

    def expiry(certificate)
      days = ((certificate[:expires_at] - @now) / DAY).floor
      return if days >= EXPIRES_SOON || (certificate[:renewal] && !days.negative?)

      date = Time.at(certificate[:expires_at]).utc.strftime("%F %R UTC")
      when_it_ends = if days.negative? then "has expired, on #{date}: clients refuse it"
                     else "expires #{days.zero? ? "within a day" : "in #{Humanize.plural(days, "day")}"}, on #{date}"
                     end
      "The certificate for #{certificate[:name]} #{when_it_ends}. Renew #{certificate[:file]}: a new file is used within seconds."
    end

    def name(worker, noun = "Worker") = "#{noun} #{Humanize.worker(worker)} (process #{worker[:pid]})"
  end
end
