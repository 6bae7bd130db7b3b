# frozen_string_literal: true

title "Streams that relay a language model, beside Rails pages at half of what the server can do"
app "streams.ru"
expect(/\A\{"id":\d+,"name":"Item \d+"/)
peers "falcon", "falcon:limiter", "itsi:fibers", "puma:3", "puma:3+io", "puma:1000"
seconds 6, warm_up: 2
database "postgres"
# The streams of one load must not burden the next.
fresh

# The same 2,000 tokens a second for any number of streams: at 20 a second each, 5,000 streams would need over five cores.
{ 0 => 0, 100 => 20, 1_000 => 2, 5_000 => 0.4 }.each do |streams, tokens|
  name = streams.to_s
  load name, streams(streams:, tokens:, share: 0.5), ideal: ("#{(1000 / tokens).round} ms between tokens" if streams.positive?)
  aim(name, "no error") { |c| c.faultless? }
  next if streams.zero?

  aim(name, "p99 of pages at most 1.5 × that without streams") { |c| c.median(:slowdown)&.<= 1.5 }
  aim(name, "all streams begin, and the fastest gets at most 1.2 × the tokens of the slowest") do |c|
    c.median(:streams) == streams && c.median(:rate_spread)&.<=(1.2)
  end
end

# Pages ask for all CPU that one worker can use, streams for three times as much.
saturating = 1_000
load "saturated", streams(streams: saturating, tokens: 100), ideal: "half of the pages that there are without streams"
aim("saturated", "no error") { |c| c.faultless? }
aim("saturated", "pages keep their half (at least 0.45 of those without streams)") { |c| c.median(:kept)&.>= 0.45 }
aim("saturated", "p99 of pages at most 3 × that without streams") { |c| c.median(:slowdown)&.<= 3 }
aim("saturated", "all streams begin, and the fastest gets at most 1.2 × the tokens of the slowest") do |c|
  c.median(:streams) == saturating && c.median(:rate_spread)&.<=(1.2)
end
