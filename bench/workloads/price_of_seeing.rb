# frozen_string_literal: true

title "What metrics cost that are read ten times a second, and whether they can be read while Ruby's lock is held"
app "seen.ru"
expect "Hello World"
peers "puma", "falcon"
seconds 5
metrics

load "c32", scraped, ideal: "as many requests as without a reader"
load "held", scraped("/held?5"), ideal: "a few ms"

aim("c32", "no error") { |c| c.faultless? }
aim("c32", "at least 0.99 of the requests that there are without a reader") { |c| c.median(:kept)&.>= 0.99 }
aim("held", "no error") { |c| c.faultless? }
aim("held", "p99 of a read at most 20 ms while all workers hold Ruby's lock") { |c| c.median(:p99)&.<= 20 }
