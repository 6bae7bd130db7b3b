# frozen_string_literal: true

title "A small document, generated as JSON for each request"
app "json.ru"
expect(/\A\{"items":\[\{"id":0,/)
peers "iodine", "itsi", "agoo", "falcon", "puma"
seconds 4

load "c32", wrk(connections: 32)

aim("c32", "faster than each peer") do |c|
  c.times(:requests_per_second, "iodine", "itsi", "agoo", "falcon", "puma")&.> 1
end
