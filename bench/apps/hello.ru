# frozen_string_literal: true

HEADERS = { "content-type" => "text/plain" }.freeze

run ->(_env) { [200, HEADERS.dup, ["Hello World"]] }
