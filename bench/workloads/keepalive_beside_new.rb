# frozen_string_literal: true

title "A router's busy connections beside new ones, 2 ms of CPU a request: is whoever comes first served first?"
app "cpu.ru"
expect "computed"
peers "falcon", "itsi", "puma:5"
seconds 8, warm_up: 2

{ "20" => 0.2, "50" => 0.5 }.each do |name, share|
  load name, keep_alive_beside_new(connections: 16, share:, path: "/?2"), ideal: "new ones wait for as long as the busy ones"
  aim(name, "no error") { |c| c.faultless? }
  aim(name, "the median of new ones is within 25 % of that of the busy ones") { |c| c.median(:new_to_kept)&.between?(0.8, 1.25) }
  aim(name, "p99 of new ones at most 1.5 × that of the busy ones") do |c|
    c.median(:p99)&.<= c.median(:kept_p99) * 1.5
  end
end
