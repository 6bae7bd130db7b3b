# frozen_string_literal: true

title "Requests that wait, beside five that stall for 2 s: how long does the slowest take?"
app "mixed.ru"
expect "Hello World"
peers "falcon", "puma:5", "puma:60", "itsi", "itsi:fibers"
sweep "puma:5", "puma:16", "puma:60", "puma:100"
workers 2
seconds 2, warm_up: 1, settle: 0.5

load "none", stall, ideal: "100 ms"
load "free", stall("/free"), ideal: "100 ms"
load "held", stall("/held"), ideal: "100 ms"
load "cpu", stall("/cpu"), ideal: "100 ms, and the slices of those that compute"
load "free-later", stall("/free", later: true), ideal: "100 ms"
load "held-later", stall("/held", later: true), ideal: "100 ms"
load "cpu-later", stall("/cpu", later: true), ideal: "100 ms, and the slices of those that compute"
load "free-beside", stall("/free", sleeps_first: true), ideal: "100 ms; those suspended on a blocked thread wait for it"
load "held-beside", stall("/held", sleeps_first: true), ideal: "100 ms; those suspended in a stuck process wait for it"

{ "free" => 120, "held" => 140, "cpu" => 300, "free-later" => 120, "held-later" => 140, "cpu-later" => 300 }.each do |load, most|
  aim(load, "at most #{most} ms in the middle of the rounds") { |c| c.median(:slowest)&.<= most }
  aim(load, "at most #{most} ms in each round") { |c| c.summary(c.reference, :slowest)&.maximum&.<= most }
end
aim("free", "no error") { |c| c.faultless? }
aim("held", "no error") { |c| c.faultless? }
aim("cpu", "no error") { |c| c.faultless? }
