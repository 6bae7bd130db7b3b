# frozen_string_literal: true

title "Every request waits 0.1 s, on 2,000 connections"
app "sleep.ru"
expect "slept"
peers "falcon", "itsi:fibers", "puma:1000"
sweep "puma:500", "puma:1000", "puma:2000", "itsi:60", "itsi:fibers"
seconds 6, settle: 0.5
environment SLEEP: "0.1"

load "c2000", wrk(connections: 2000, threads: 2, timeout: 10), ideal: "20,000 requests/s"

aim("c2000", "1.6 × Falcon") { |c| c.times(:requests_per_second, "falcon")&.>= 1.6 }
aim("c2000", "no error") { |c| c.faultless? }
aim("c2000", "p99 under 170 ms") { |c| c.median(:p99)&.< 170 }
