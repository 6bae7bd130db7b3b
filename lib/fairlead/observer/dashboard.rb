# frozen_string_literal: true

require "json"

module Fairlead
  # The dashboard of the observer process: a page, and its data as JSON. The page is one file without anything from elsewhere.
  class Dashboard
    PAGE = File.read(File.join(__dir__, "dashboard.html"), encoding: "UTF-8").freeze
    # Seconds for which the same data is sent to whoever asks.
    FRESH = 0.5
    # The most stalls, routes and requests that are shown.
    STALLS = 10
    ROUTES = 50
    REQUESTS = 20
    # Seconds between the two reports of which rates are made, and how many are kept for that.
    LEAST = 0.9
    REPORTS = 8
    private_constant :PAGE, :FRESH, :STALLS, :ROUTES, :REQUESTS, :LEAST, :REPORTS

    # @param page [SharedPage]
    # @param status [ServerStatus]
    # @param started_at [Float] of the server, in seconds since 1970
    def initialize(page, status, configuration, started_at: Time.now.to_f)
      @page = page
      @status = status
      @configuration = configuration
      @started_at = started_at
      @history = History.new(page)
      @recent = RecentTimes.new(Clock.now)
      @meter = ProcessMeter.new
      @lock = Thread::Mutex.new
      @reports = []
    end

    # Samples for ever; to be called once, in the process that answers.
    def start
      Thread.new do
        Thread.current.name = "fairlead history"
        loop do
          sample
          sleep History::INTERVAL
        end
      end
    end

    # @return [Hash{String => #call}] see {ObserverServer}
    def routes = { "/" => method(:page), "/data.json" => method(:data) }

    def page(_request)
      nonce = [Random.urandom(16)].pack("m0")
      policy = "default-src 'none'; script-src 'nonce-#{nonce}'; style-src 'nonce-#{nonce}'; connect-src 'self'; img-src data:; " \
               "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
      [200, { "content-type" => "text/html; charset=utf-8", "content-security-policy" => policy, "referrer-policy" => "no-referrer" },
       PAGE.gsub("{{nonce}}", nonce)]
    end

    # @param request [ObserverConnection::Request] its query may be `after=NUMBER`, see {History#after}.
    def data(request)
      after = request.query[/\Aafter=(\d{1,12})\z/, 1].to_i
      [200, { "content-type" => "application/json" }, JSON.generate({ **current, history: @history.after(after) })]
    end

    private

    # Nobody may be looking, so the supervisor is not asked.
    def sample
      reading = nil
      @lock.synchronize do # readings come in the order of their times
        reading = RecentTimes.read(@page)
        @recent.figures(reading)
        report(answer({}), ProcessUsage.method(:brief))
      end
      @history.add(reading)
    rescue StandardError => error # the next one may be taken
      Log.say "The dashboard could not read the server's figures: #{error.full_message(highlight: false)}"
    end

    def current
      @lock.synchronize do
        return @current if @current && Clock.now - @current_at < FRESH

        latest = @status.latest
        @current_at = Clock.now
        @current = { **report(answer(latest), @meter).to_h.except(:routes), now: Time.now.to_f, stalls: stalls(latest),
                     requests: in_flight(latest), times: }
      end
    end

    # The rates in it are those since the last report that is not too young for it.
    def report(answer, usage)
      before = @reports.reverse.find { |report| Clock.now - report.at >= LEAST } || @reports.first
      @reports = [*@reports, StatusReport.new(answer, before:, usage:)].last(REPORTS)
      @reports.last
    end

    # What the supervisor last said, with the workers as they are now. It may be busy, or have no control socket.
    def answer(latest)
      stats = JSON.parse(JSON.generate(WorkerStats.of(@page)), symbolize_names: true)
      pools = (latest.dig(:status, :workers) || []).to_h { |worker| [worker[:pid], worker.slice(:pools, :pools_age)] }
      workers = stats[:workers].map { |worker| { **worker, pools: [], pools_age: nil, **pools.fetch(worker[:pid], {}) } }
      { **unknown, **latest, status: { **unknown[:status], **latest.fetch(:status, {}), workers: } }
    end

    def unknown
      { pid: nil, folder: Dir.pwd, tag: @configuration.tag, addresses: [], restarts: { generation: 0, serving: true, failure: nil },
        status: { version: VERSION, ruby: RUBY_VERSION, yjit: nil, environment: @configuration.environment, started_at: @started_at,
                  limits: { in_flight: @configuration.in_flight, database_connections: @configuration.database_connections }, routes: [] } }
    end

    def stalls(latest) = latest.fetch(:stalls, []).first(STALLS).map { |stall| stall.except(:backtrace) }

    # The oldest first.
    def in_flight(latest) = RequestReports.now(latest[:status]).first(REQUESTS)

    def times
      figures = @recent.figures(RecentTimes.read(@page))
      { **figures, routes: figures[:routes].first(ROUTES) }
    end
  end
end
