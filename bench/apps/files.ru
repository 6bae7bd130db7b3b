# frozen_string_literal: true

# Files for servers that serve none themselves, with as little before them as Rails can have: a proxy may cache them, or send them itself.

require "rack"

use Rack::Sendfile
run Rack::Files.new(ENV.fetch("PUBLIC_FILES"), { "cache-control" => "public, max-age=31536000" })
