# frozen_string_literal: true

title "Requests that wait, beside five that stall for 2 s: how long does the slowest take?"
app "mixed.ru"
expect "Hello World"
peers "falcon", "puma:5", "puma:60", "itsi", "itsi:fibers"
sweep "puma:5", "puma:16", "puma:60", "puma:100"
workers 2
seconds 2, warm_up: 1, settle: 0.5
# What one load has taught the server would help it with the next one.
fresh

load "none", stall, ideal: "100 ms"
load "free", stall("/free"), ideal: "100 ms", most: 120
load "held", stall("/held"), ideal: "100 ms", most: 140
load "cpu", stall("/cpu"), ideal: "100 ms, and the slices of those that compute", most: 300
load "free-later", stall("/free", later: true), ideal: "100 ms", most: 120
load "held-later", stall("/held", later: true), ideal: "100 ms", most: 140
load "cpu-later", stall("/cpu", later: true), ideal: "100 ms, and the slices of those that compute", most: 300
# All that is under way in two workers is suspended by five that block.
load "free-beside", stall("/free", suspends: "thread"), ideal: "100 ms for those on other threads, if there are any"
load "free-beside-one", stall("/free", suspends: "thread", blockers: 1),
  ideal: "100 ms for those on other threads", most: 140
load "held-beside-one", stall("/held", suspends: "process", blockers: 1),
  ideal: "100 ms for those in other processes", most: 140
