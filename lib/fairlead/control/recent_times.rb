# frozen_string_literal: true

module Fairlead
  # What the requests of the last minute spent their time on, in all and by route: the difference between two readings of
  # `SharedPage#times`.
  class RecentTimes
    # Seconds that the figures are about, and the least between two readings that are kept.
    WINDOW = 60.0
    STEP = 5.0
    # @!attribute times [Hash] see `SharedPage#times`
    # @!attribute routes [Array<Hash>] see `SharedPage#route_times`
    Reading = Data.define(:at, :times, :routes)
    private_constant :WINDOW, :STEP, :Reading

    # @return [Reading] of the page
    def self.read(page, at: Clock.now) = Reading.new(at:, times: page.times, routes: page.route_times)

    # @param status [Hash] a server's answer
    # @return [Reading, nil] nil: an older server, which does not answer this.
    def self.from(status, at: Clock.now)
      Reading.new(at:, times: status[:times], routes: status[:route_times]) if status[:times]
    end

    # @param since [Float] when the server was started, on the clock of the readings
    def initialize(since)
      @since = since
      @readings = []
    end

    # @return [Hash] `{ seconds:, requests:, p50:, p99:, queue_p50:, queue_p99:, codes:, kinds:, routes: }` since the reading of a minute
    #   ago: requests, codes and kinds (seconds) per second, and by quantile seconds, nil where there were no requests. Each of the
    #   `routes:` has `{ route:, count:, requests:, errors:, p50:, p99:, kinds: }`, of which `count:` is since the server's start; the
    #   one that took most time is first.
    def figures(reading)
      keep(reading)
      before = @readings.first unless @readings.first.equal?(reading)
      seconds = [reading.at - (before ? before.at : @since), 0.001].max
      { seconds:, **overall(reading.times, before&.times, seconds), routes: routes(reading.routes, before&.routes, seconds) }
    end

    private

    def keep(reading)
      @readings.clear if total(@readings.last) > total(reading) # the server has been started anew
      @readings << reading if @readings.empty? || reading.at - @readings.last.at >= STEP
      @readings.shift while @readings.size > 1 && reading.at - @readings[1].at >= WINDOW
    end

    def total(reading) = reading ? reading.times[:service][:counts].sum : 0

    def overall(now, before, seconds)
      service = Histogram.of(now[:service]) - Histogram.of(before&.fetch(:service))
      queue = Histogram.of(now[:queue]) - Histogram.of(before&.fetch(:queue))
      { requests: service.size / seconds, **quantiles(service), queue_p50: queue.quantile(0.5), queue_p99: queue.quantile(0.99),
        codes: rates(now[:codes], before&.fetch(:codes), seconds), kinds: rates(now[:kinds], before&.fetch(:kinds), seconds) }
    end

    def routes(rows, rows_before, seconds)
      before = (rows_before || []).to_h { |row| [row[:route], row] }
      rows.map { |row| route(row, before[row[:route]], seconds) }.sort_by { |row| [-row[:kinds].values.sum, -row[:requests], -row[:count]] }
    end

    def route(row, before, seconds)
      service = Histogram.of(row[:service]) - Histogram.of(before&.fetch(:service))
      { **row.slice(:route, :count), requests: service.size / seconds, errors: (row[:errors] - (before ? before[:errors] : 0)) / seconds,
        **quantiles(service), kinds: rates(row[:kinds], before&.fetch(:kinds), seconds) }
    end

    def quantiles(histogram) = { p50: histogram.quantile(0.5), p99: histogram.quantile(0.99) }

    def rates(now, before, seconds) = now.to_h { |key, value| [key, [value - (before ? before[key] : 0), 0].max / seconds] }
  end
end
