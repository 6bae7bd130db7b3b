# frozen_string_literal: true

title "Idle TLS connections: the memory they take, and what others notice of them"
app "hello.ru"
expect "Hello World"
peers "falcon", "itsi:patient", "puma", "thruster", "nginx:puma", "nginx"
seconds 4, warm_up: 1
fresh
tls

[1_000, 10_000].each do |count|
  load "c#{count}", crowd(connections: count, beside: 4), ideal: "0 MB"
  aim("c#{count}", "none closed, no error") { |c| c.faultless? && c.total(c.reference, :closed_by_server).zero? }
  aim("c#{count}", "less memory than each server that runs the app") do |c|
    memory = ["falcon", "itsi:patient", "puma", "thruster", "nginx:puma"].map { |peer| c.median(:extra_memory, peer) }
    c.median(:extra_memory)&.<=(memory.min) if memory.all?
  end
end
