# frozen_string_literal: true

title "The same Rails app on MariaDB with mysql2, of the published drivers the one that blocks: 50 slow queries at once"
app "mixed_rails.ru"
expect "Hello World"
peers "falcon", "puma:5", "puma:60"
seconds 2, warm_up: 2, settle: 0.5
database "mariadbd", driver: "mysql2"

load "slow-sql-cold", stall(waits: "/slow_sql?1"), ideal: "1,000 ms"
load "slow-sql", stall(waits: "/slow_sql?1"), ideal: "1,000 ms"

aim("slow-sql", "under 1.1 s") { |c| c.median(:slowest)&.< 1100 }
aim("slow-sql", "no error") { |c| c.faultless? }
