# frozen_string_literal: true

title "Requests that wait: the memory they take"
app "mixed.ru"
expect "Hello World"
peers "falcon", "itsi:fibers"
seconds 1, warm_up: 1
fresh

# As long as the slowest server takes to begin with all of them.
{ 1_000 => 4, 10_000 => 9, 20_000 => 16 }.each do |count, seconds|
  load "c#{count}", crowd(connections: count, path: "/sleep?#{seconds}", waiting: seconds)
end

aim("c10000", "under 300 MB") { |c| c.median(:extra_memory)&.< 300 }
aim("c10000", "all answered") { |c| c.faultless? }
aim("c20000", "all answered") { |c| c.faultless? }
