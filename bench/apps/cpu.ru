# frozen_string_literal: true

# Every request computes for 10 ms.
SECONDS = 0.01

run lambda { |_env|
  limit = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + SECONDS
  nil while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < limit
  [200, { "content-type" => "text/plain" }, ["computed"]]
}
