# frozen_string_literal: true

title "The smallest answer, 16 requests at a time on each connection"
app "hello.ru"
expect "Hello World"
peers "iodine", "itsi", "agoo", "falcon", "puma:5+low_latency"
seconds 4

load "c4", wrk(connections: 4, pipeline: 16)
load "c32", wrk(connections: 32, pipeline: 16)

ahead "c32"
