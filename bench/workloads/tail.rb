# frozen_string_literal: true

title "How long the slowest wait, at 50 % and 80 % of what each server can do at most (random arrivals)"
app "rails_plain.ru"
expect "Hello World"
peers "falcon", "itsi", "puma:5", "puma:1"
sweep "puma:1", "puma:3", "puma:5"
# Of less the slowest hundredth is that of one bad moment.
seconds 8, warm_up: 4

load "50", open_loop(share: 0.5)
load "80", open_loop(share: 0.8)

aim("50", "no slower p99 than the best peer, at its own lower load") do |c|
  waits = ["falcon", "itsi", "puma:5", "puma:1"].map { |peer| c.median(:p99, peer) }
  c.median(:p99)&.<=(waits.min) if waits.all?
end
aim("80", "no error") { |c| c.faultless? }
