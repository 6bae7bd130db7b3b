# frozen_string_literal: true

# The kinds of work that the demo can do. One row each makes the route, the row on the page, what may be fired.
module Work
  # @!attribute duration [Float] seconds, when the request does not say.
  # @!attribute waits [Symbol] :nothing, :yields (others are served meanwhile), :blocks or :computes.
  Kind = Data.define(:name, :title, :duration, :waits, :shows)

  KINDS = [
    Kind["sleep", "Sleep", 1.0, :yields,
      "<code>sleep</code> in the controller. Its fiber steps aside: fifty of them take as long as one."],
    Kind["slow_sql", "Slow SQL", 1.0, :yields, -> { SlowQuery.explanation }],
    Kind["remote_io", "Remote IO", 1.0, :yields,
      "<code>Net::HTTP</code> to a small server, started with this demo, that takes its time to answer."],
    Kind["cwork_without_gvl", "C code that releases Ruby’s lock", 0.1, :blocks,
      "A C extension that blocks its thread, and lets others run, as a well-behaved one does. One stands by, and " \
      "serves the rest within milliseconds; once known for blocking, up to eight of these run at once in each worker."],
    Kind["cwork_with_gvl", "C code that holds Ruby’s lock", 0.1, :blocks,
      "The same extension, badly behaved: no other Ruby can run in its process. The requests that wait there go to " \
      "another worker within milliseconds; once known for it, these run in processes apart, one at a time in each."],
    Kind["cpu", "Pure Ruby computing", 0.1, :computes,
      "It waits for nothing, so nothing is won by waiting well: first come, first served, on as many cores " \
      "as there are workers."],
    Kind["find", "A record as JSON", 0.0, :nothing,
      "<code>Vessel.find(id)</code>, rendered as JSON. Quick, unless you add a wait."],
    Kind["plain", "Plain text", 0.0, :nothing,
      "<code>render plain:</code>: what Rails itself costs, and the server."]
  ].to_h { |kind| [kind.name, kind] }.freeze

  # Computes in Ruby until this thread has used so much CPU time.
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
