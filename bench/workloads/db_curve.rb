# frozen_string_literal: true

title "Ten queries of 10 ms a request, on PostgreSQL: how much of what the connections could do, as they grow in number"
app "db_10x10.ru"
expect "10 x 10 ms"
peers "falcon", "puma:32", "puma:128"
workers 2
seconds 3, warm_up: 4, settle: 1
database "postgres"

# A request takes 0.1 s at least.
[16, 32, 64, 128, 256, 512].each do |count|
  load "c#{count}", wrk(connections: count, timeout: 10), ideal: "#{count * 10} requests/s"
end
curve 0.1

aim("c16", "0.9 of the ideal") { |c| c.median(:requests_per_second)&.>= 144 }
aim("c512", "no error") { |c| c.faultless? }
