# frozen_string_literal: true

title "Rails 8.1, render plain:"
app "rails_plain.ru"
expect "Hello World"
peers "falcon", "itsi", "iodine", "puma:5", "puma:1"
sweep "puma:1", "puma:2", "puma:3", "puma:5", "puma:10", "itsi:1", "itsi:3"
seconds 5, warm_up: 4

load "c32", wrk(connections: 32, timeout: 10)

aim("c32", "1.3 × Falcon") { |c| c.times(:requests_per_second, "falcon")&.>= 1.3 }
aim("c32", "2.5 × Puma (5 threads)") { |c| c.times(:requests_per_second, "puma:5")&.>= 2.5 }
