# frozen_string_literal: true

# Every request computes: for 10 ms, or for as many as the query says; /mixed for 10 or 50 ms, 20 on average. How many
# requests workers have handed to each other, /handed says.
MILLISECONDS = 10

def milliseconds(env)
  return env["QUERY_STRING"].to_i.nonzero? || MILLISECONDS unless env["PATH_INFO"] == "/mixed"

  rand(4).zero? ? 50 : 10
end

def handed
  return 0 unless defined?(Fairlead.page) && (page = Fairlead.page)

  page.slots.times.sum { |slot| page.read(slot)[:handed] }
end

run lambda { |env|
  next [200, { "content-type" => "text/plain" }, [handed.to_s]] if env["PATH_INFO"] == "/handed"

  limit = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + (milliseconds(env) / 1000.0)
  nil while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < limit
  [200, { "content-type" => "text/plain" }, ["computed"]]
}
