# frozen_string_literal: true

title "10 ms of CPU a request, and more of them than can be served: " \
  "how many are, what becomes of the others, and when is all as before?"
app "cpu.ru"
expect "computed"
peers "falcon", "itsi", "puma:5", "pitchfork"
seconds 3, warm_up: 1
fresh

# One worker can do 100 a second. Afterwards half of that comes, and should be answered as if nothing had been.
capacity = 100
{ "1x" => 1, "2x" => 2, "5x" => 5, "10x" => 10 }.each do |name, times|
  load name, open_loop(rate: capacity * times, connections: 4_000, patience: 1, refusals: true, calm: capacity / 2),
    ideal: "100 good answers/s"
  aim(name, "no error") { |c| c.faultless? }
  aim(name, "as before within 1 s after it, in each round") { |c| c.summary(c.reference, :recovered)&.maximum&.<= 1000 }
end

%w[5x 10x].each do |name|
  aim(name, "at least 0.95 of what is possible") { |c| c.median(:requests_per_second)&.>= capacity * 0.95 }
  aim(name, "nobody gives up: a right answer in time, or 503 with Retry-After") do |c|
    c.summary(c.reference, :gave_up)&.maximum&.zero? && c.total(c.reference, :bare).zero?
  end
  # In the first second it may still be a burst: who waited when that is decided has waited for as long.
  aim(name, "503 at once: p99 of those that come after the first second within 100 ms") do |c|
    c.median(:refused_later_p99)&.<= 100
  end
end
