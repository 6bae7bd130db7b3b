# frozen_string_literal: true

BODIES = { "/1k" => 1_000, "/100k" => 100_000, "/10m" => 10_000_000 }.transform_values { |size| ("x" * size).freeze }

run lambda { |env|
  body = BODIES.fetch(env["PATH_INFO"], "Hello World")
  [200, { "content-type" => "application/octet-stream", "content-length" => body.bytesize.to_s }, [body]]
}
