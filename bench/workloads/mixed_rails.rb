# frozen_string_literal: true

title "A Rails app that waits for its database or for another server, 50 requests at once, 1 s each"
app "mixed_rails.ru"
expect "Hello World"
peers "falcon", "puma:5", "puma:60"
seconds 2, warm_up: 2, settle: 0.5
database "postgres"

# Whose connections are opened within: the first fifty.
load "slow-sql-cold", stall(waits: "/slow_sql?1"), ideal: "1,000 ms"
load "slow-sql", stall(waits: "/slow_sql?1"), ideal: "1,000 ms"
load "remote-io", stall(waits: "/remote_io?1"), ideal: "1,000 ms"
# As published: the five take ten seconds, and the others took 10.35 s.
load "remote-io-beside-free", stall("/free", waits: "/remote_io?1", stalls: 10), ideal: "1,000 ms"
# Beside requests that hold Ruby's lock, one process can do nothing: see mixed, which has two.

%w[slow-sql remote-io].each { |load| aim(load, "under 1.1 s") { |c| c.median(:slowest)&.< 1100 } }
aim("remote-io-beside-free", "under 1.2 s") { |c| c.median(:slowest)&.< 1200 }
%w[slow-sql remote-io remote-io-beside-free].each { |load| aim(load, "no error") { |c| c.faultless? } }
