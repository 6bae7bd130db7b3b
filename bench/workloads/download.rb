# frozen_string_literal: true

title "Answers of 1 KB, 100 KB and 10 MB"
app "download.ru"
expect "Hello World"
peers "iodine", "itsi", "agoo", "falcon", "puma"
sweep "puma:1", "puma:5", "puma:16"
seconds 4

load "1k", wrk(connections: 32, path: "/1k")
load "100k", wrk(connections: 32, path: "/100k")
load "10m", wrk(connections: 4, path: "/10m", timeout: 20)

ahead "1k", "100k", "10m"
