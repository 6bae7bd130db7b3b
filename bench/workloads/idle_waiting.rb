# frozen_string_literal: true

title "Requests that wait: the memory they take"
app "mixed.ru"
expect "Hello World"
peers "falcon", "itsi:fibers"
seconds 1
fresh

[1_000, 10_000, 19_500].each { |count| load "c#{count}", crowd(connections: count, path: "/sleep?15", waiting: true) }

aim("c10000", "under 300 MB") { |c| c.median(:extra_memory)&.< 300 }
aim("c10000", "all answered") { |c| c.faultless? }
aim("c19500", "all answered") { |c| c.faultless? }
