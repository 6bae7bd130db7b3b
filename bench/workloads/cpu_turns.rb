# frozen_string_literal: true

title "20 ms of CPU a request on connections that stay: does everybody wait for the same time?"
app "cpu.ru"
expect "computed"
peers "falcon", "puma:5", "puma:1"
workers 2
seconds 8, warm_up: 3, settle: 0.5

# Two cores can do 100 requests a second. In one line for all, each of N connections waits for N × 10 ms; where one in
# four takes 50 ms and the others 10, the figures are those of a simulation of such a line.
{ 16 => 250, 40 => 540 }.each do |connections, mixed_p99|
  p50 = connections * 10
  load "c#{connections}", turns(connections:, path: "/?20"), ideal: "p50 and p99 #{p50} ms"
  load "mixed-c#{connections}", turns(connections:, path: "/mixed"), ideal: "p50 #{p50} ms, p99 #{mixed_p99} ms"

  aim("c#{connections}", "p99 at most 1.15 × p50") { |c| c.median(:p99)&.<= c.median(:p50) * 1.15 }
  aim("mixed-c#{connections}", "p99 at most 1.15 × the ideal") { |c| c.median(:p99)&.<= mixed_p99 * 1.15 }
  ["c#{connections}", "mixed-c#{connections}"].each do |load|
    aim(load, "p50 within 5 % of the ideal") { |c| c.median(:p50)&.between?(p50 * 0.95, p50 * 1.05) }
    aim(load, "at most 0.1 hand-overs a request") { |c| c.median(:handed)&.<= 0.1 }
  end
  aim("c#{connections}", "as many requests/s as each peer (within 2 %)") do |c|
    c.times(:requests_per_second, "falcon", "puma:5", "puma:1")&.>= 0.98
  end
end

# Where each request takes long, that is ordinary.
load "heavy-c16", turns(connections: 16, path: "/?100"), ideal: "p50 and p99 800 ms"
aim("heavy-c16", "p99 at most 1.15 × p50") { |c| c.median(:p99)&.<= c.median(:p50) * 1.15 }
