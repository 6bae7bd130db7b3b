# frozen_string_literal: true

title "Every request waits 0.1 s, at the published numbers of connections"
app "sleep.ru"
expect "slept"
peers "falcon", "itsi:fibers", "puma:10"
seconds 4, settle: 0.3
environment SLEEP: "0.1"

{ "c10" => 100, "c20" => 200, "c100" => 1_000 }.each do |name, ideal|
  load name, wrk(connections: ideal / 10), ideal: "#{ideal} requests/s, each after 100 ms"
  aim(name, "at least 0.97 of the ideal") { |c| c.median(:requests_per_second)&.>= ideal * 0.97 }
  aim(name, "no error") { |c| c.faultless? }
end
