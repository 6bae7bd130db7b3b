# frozen_string_literal: true

title "Idle keep-alive connections: the memory they take"
app "hello.ru"
expect "Hello World"
peers "iodine", "itsi:patient", "agoo", "falcon", "puma"
seconds 1, warm_up: 1
fresh

[1_000, 10_000, 20_000].each { |count| load "c#{count}", crowd(connections: count), ideal: "0 MB" }

aim("c10000", "under 20 MB more than none") { |c| c.median(:extra_memory)&.< 20 }
aim("c10000", "none closed, no error") { |c| c.faultless? && c.total(c.reference, :closed_by_server).zero? }
aim("c20000", "none closed, no error") { |c| c.faultless? && c.total(c.reference, :closed_by_server).zero? }
