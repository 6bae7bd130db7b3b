# frozen_string_literal: true

title "10,000 connections, each of whose requests waits 1 s"
app "sleep.ru"
expect "slept"
peers "falcon", "itsi:fibers"
seconds 10, warm_up: 4, settle: 2
environment SLEEP: "1"

load "c10000", wrk(connections: 10_000, threads: 2, timeout: 10), ideal: "10,000 requests/s"

aim("c10000", "no error") { |c| c.faultless? }
aim("c10000", "under 300 MB in all") { |c| c.median(:peak_rss)&.< 300 }
