# frozen_string_literal: true

title "10 ms of CPU a request, and more of them than can be served: how many are, before their client gives up?"
app "cpu.ru"
expect "computed"
peers "falcon", "itsi", "puma:5", "pitchfork"
seconds 3
fresh

# One worker can do 100 a second.
capacity = 100
{ "1x" => 1, "2x" => 2, "5x" => 5, "10x" => 10 }.each do |name, times|
  load name, open_loop(rate: capacity * times, connections: 4_000, patience: 1, refusals: true), ideal: "100 good answers/s"
end

aim("10x", "at least 0.95 of what is possible") { |c| c.median(:requests_per_second)&.>= capacity * 0.95 }
aim("10x", "no error") { |c| c.faultless? }
