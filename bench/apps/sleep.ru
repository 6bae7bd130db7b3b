# frozen_string_literal: true

# Every request waits: 0.1 s, or SLEEP seconds.
SECONDS = Float(ENV.fetch("SLEEP", "0.1"))

run lambda { |_env|
  sleep SECONDS
  [200, { "content-type" => "text/plain" }, ["slept"]]
}
