# frozen_string_literal: true

title "Rails 8.1 with PostgreSQL, Model.find as JSON"
app "rails_find.ru"
expect(/\A\{"id":\d+,"name":"Item \d+"/)
peers "falcon", "itsi", "iodine", "puma:5", "puma:1"
sweep "puma:1", "puma:2", "puma:3", "puma:5", "puma:10", "itsi:1", "itsi:3"
seconds 5, warm_up: 4
database "postgres"

load "c32", wrk(connections: 32, timeout: 10)

aim("c32", "1.1 × Falcon") { |c| c.times(:requests_per_second, "falcon")&.>= 1.1 }
aim("c32", "2 × Puma with 5 threads") { |c| c.times(:requests_per_second, "puma:5")&.>= 2 }
aim("c32", "1.7 × Puma with one") { |c| c.times(:requests_per_second, "puma:1")&.>= 1.7 }
