# frozen_string_literal: true

title "Rails 8.1 with PostgreSQL: 5 ms of work in the database, then a find"
app "rails_db.ru"
expect(/\A\{"id":\d+,"name":"Item \d+"/)
peers "falcon", "puma:3", "puma:10", "puma:20", "puma:40"
sweep "puma:3", "puma:5", "puma:10", "puma:20", "puma:40", "puma:80"
workers 2
seconds 6, warm_up: 4, settle: 0.5
database "postgres"

load "c1", wrk(connections: 1, timeout: 10)
load "c4", wrk(connections: 4, timeout: 10)
load "c40", wrk(connections: 40, timeout: 10)
load "c80", wrk(connections: 80, timeout: 10)
load "c160", wrk(connections: 160, timeout: 10)

aim("c160", "1.15 × Falcon") { |c| c.times(:requests_per_second, "falcon")&.>= 1.15 }
aim("c160", "1.7 × Puma with 10 threads") { |c| c.times(:requests_per_second, "puma:10")&.>= 1.7 }
aim("c160", "p99 at most 1.75 × p50") { |c| c.median(:p99)&.<= 1.75 * c.median(:p50) }
aim("c160", "no error") { |c| c.faultless? }
