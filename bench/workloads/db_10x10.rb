# frozen_string_literal: true

title "Ten queries of 10 ms a request, through ActiveRecord, on PostgreSQL"
app "db_10x10.ru"
expect "10 x 10 ms"
pumas = %w[puma:16 puma:64 puma:128 puma:512]
peers "falcon", *pumas
sweep "puma:16", "puma:32", "puma:64", "puma:128", "puma:256", "puma:512"
workers 2
seconds 6, warm_up: 4, settle: 1
database "postgres"

load "c128", wrk(connections: 128, timeout: 10), ideal: "1,280 requests/s"
# As published: 512 connections for 30 s, and a database that takes twice as many. On two cores the CPU is the limit.
load "c512", wrk(connections: 512, threads: 2, timeout: 10), ideal: "5,120 requests/s", seconds: 30

%w[c128 c512].each do |load|
  aim(load, "1.05 × Falcon") { |c| c.times(:requests_per_second, "falcon")&.>= 1.05 }
  aim(load, "1.15 × the best Puma") { |c| c.times(:requests_per_second, *pumas)&.>= 1.15 }
  aim(load, "p99 at most 1.4 × p50") { |c| c.median(:p99)&.<= 1.4 * c.median(:p50) }
  aim(load, "no error") { |c| c.faultless? }
end
