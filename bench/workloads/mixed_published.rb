# frozen_string_literal: true

title "As published: fifty requests that ask another server and wait for 1 s, beside five that block in C for 10 s"
app "mixed_rails.ru"
expect "Hello World"
peers "falcon", "puma:5", "puma:60"
workers 2
seconds 10, warm_up: 1, settle: 0.5
database "postgres"
fresh

load "without-gvl", stall("/free", waits: "/remote_io?1"), ideal: "1,000 ms", most: 1200
load "with-gvl", stall("/held", waits: "/remote_io?1"), ideal: "1,000 ms", most: 1300
load "with-gvl-again", stall("/held", waits: "/remote_io?1", again: true), ideal: "1,000 ms", most: 1300
