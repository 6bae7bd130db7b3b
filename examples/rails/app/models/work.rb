# frozen_string_literal: true

# The kinds of work in the demo. Each row defines a route and a row of the page.
module Work
  # @!attribute duration [Float] seconds, when the request does not say.
  # @!attribute waits [Symbol] :nothing, :yields (others are served meanwhile), :blocks or :computes.
  Kind = Data.define(:name, :title, :duration, :waits, :shows)

  KINDS = [
    Kind["sleep", "Sleep", 1.0, :yields,
      "The controller calls <code>sleep</code>. Its fiber yields, so fifty requests take as long as one."],
    Kind["slow_sql", "Slow SQL", 1.0, :yields, -> { SlowQuery.explanation }],
    Kind["remote_io", "Remote IO", 1.0, :yields,
      "The controller calls a slow HTTP server, which the demo has started, through <code>Net::HTTP</code>."],
    Kind["cwork_without_gvl", "C code that releases the GVL", 0.1, :blocks,
      "A C extension blocks its thread but releases Ruby’s global lock. Within milliseconds a standby thread serves the " \
      "other requests. Once Fairlead knows the route, each worker runs up to eight of these at once."],
    Kind["cwork_with_gvl", "C code that holds the GVL", 0.1, :blocks,
      "The extension blocks and keeps Ruby’s global lock, so no other Ruby can run in its process. Within milliseconds " \
      "waiting requests move to another worker. Once Fairlead knows the route, separate processes run these, one at a time."],
    Kind["cpu", "Pure Ruby computing", 0.1, :computes,
      "It never waits, so fibers gain nothing: requests run first come, first served, on as many cores as there " \
      "are workers."],
    Kind["find", "A record as JSON", 0.0, :nothing,
      "The controller renders <code>Vessel.find(id)</code> as JSON. Add a wait if you like."],
    Kind["plain", "Plain text", 0.0, :nothing,
      "The controller calls <code>render plain:</code>, which shows the cost of Rails and the server."]
  ].to_h { |kind| [kind.name, kind] }.freeze

  # Computes in Ruby until this thread has used that much CPU time.
  #
  # @return [Integer] rounds done.
  def self.compute(seconds)
    finish = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + seconds
    rounds = 0
    while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < finish
      1_000.times { |number| number * number % 7 }
      rounds += 1
    end
    rounds
  end
end
