# frozen_string_literal: true

title "Bodies that the app reads"
app "upload.ru"
expect "0"
peers "iodine", "itsi", "falcon", "puma"
sweep "puma:1", "puma:5", "puma:16"
seconds 4

load "1k", wrk(connections: 32, body: 1_000)
load "100k", wrk(connections: 32, body: 100_000)
load "10m", wrk(connections: 4, body: 10_000_000, timeout: 20)

ahead "1k", "100k", "10m"
