# frozen_string_literal: true

require "json"

ITEMS = Array.new(10) do |n|
  { id: n, name: "Item #{n}", price: n * 1.25, tags: %w[small round], active: n.even?, note: nil }
end.freeze

run ->(_env) { [200, { "content-type" => "application/json" }, [JSON.generate(items: ITEMS)]] }
