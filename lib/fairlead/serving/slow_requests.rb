# frozen_string_literal: true

module Fairlead
  # The slowest requests of the last minutes of a worker, a few of them, each with where its time went. The core calls it at the end of
  # requests that have taken long enough to get into the list; streams are not among them.
  class SlowRequests
    MOST = 20
    # Seconds: the list has what ended within the present and the previous span.
    SPAN = 150
    # Seconds of service below which no request is slow.
    LEAST = 0.05
    private_constant :MOST, :SPAN, :LEAST

    # @param loop [Loop]
    def initialize(loop)
      @loop = loop
      @present = []
      @previous = []
      @ends_at = Clock.now + SPAN
      observe(LEAST)
    end

    # A callback of `rack.response_finished`, in the request's fiber.
    def call(env, status, *)
      request = ServingFiber.of(Fiber.current)&.request or return
      details = describe(request, env, status)
      add(details) if details[:duration] >= LEAST && !request.stream?
      RequestNotification.publish(details) # last: a subscriber may raise
    end

    # Safe in any thread.
    #
    # @return [Array<Hash>] the slowest first, see {Fairlead.on_request}.
    def list
      rotate
      (@present + @previous).max_by(MOST) { |row| row[:duration] }.map { |row| { **row, ago: Time.now.to_f - row[:ended] } }
    end

    private

    # Which requests the core is to call for: those that have taken so many seconds, or all.
    def observe(least) = @loop.observe(self, RequestNotification.wanted? ? 0.0 : least)

    # @return [Hash] see {Fairlead.on_request}.
    def describe(request, env, status)
      method, path = env.values_at("REQUEST_METHOD", "PATH_INFO").map { |text| Fairlead.escape(text.to_s.b[0, 300]) }
      times = request.times || {}
      {
        id: request.id, method:, path:, route: RailsRoutes.action_of(env) || (Fairlead.page || Fairlead).route(method, path),
        status: request.status.nonzero? || status,
        request_id: (env["action_dispatch.request_id"] || env["HTTP_X_REQUEST_ID"])&.then { |id| Fairlead.escape(id.to_s.b[0, 200]) },
        duration: times.values.sum, queue: request.queue_time, times:, **request.notes?.to_h, ended: Time.now.to_f
      }
    end

    # Nothing waits here, so that no other fiber runs meanwhile; readers of other threads see the one list or the other.
    def add(details)
      rotate
      @present = [*@present, details].max_by(MOST) { |row| row[:duration] }
      observe(@present.last[:duration]) if @present.size == MOST
    end

    def rotate
      return if Clock.now < @ends_at

      @previous = Clock.now < @ends_at + SPAN ? @present : []
      @present = []
      @ends_at = Clock.now + SPAN
      observe(LEAST)
    end
  end
end
