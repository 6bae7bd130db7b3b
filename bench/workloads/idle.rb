# frozen_string_literal: true

title "10,000 idle keep-alive connections: the memory they take"
app "hello.ru"
expect "Hello World"
peers "iodine", "itsi", "falcon", "puma"
seconds 1

load "c10000", crowd(connections: 10_000), ideal: "0 MB"

aim("c10000", "under 20 MB more than none") { |c| c.median(:extra_memory)&.< 20 }
aim("c10000", "none closed, no error") { |c| c.faultless? && c.total(c.reference, :closed_by_server).zero? }
