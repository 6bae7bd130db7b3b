# frozen_string_literal: true

# Requests that wait, beside such as stall: in C without Ruby's lock (/free), in C holding it (/held), and in Ruby
# (/cpu), for the seconds that follow; with `&later` they wait 10 ms before. Each answer says where it was made. Fiddle
# calls C for us, so that nothing has to be compiled.
require "fiddle"

C = Fiddle.dlopen(nil)["usleep"]
FREE = Fiddle::Function.new(C, [Fiddle::TYPE_INT], Fiddle::TYPE_INT)
HELD = Fiddle::Function.new(C, [Fiddle::TYPE_INT], Fiddle::TYPE_INT, need_gvl: true)

def compute(seconds)
  limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
  nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < limit
end

run lambda { |env|
  seconds, later = env["QUERY_STRING"].split("&")
  seconds = seconds.to_f
  sleep 0.01 if later
  case env["PATH_INFO"]
  when "/sleep" then sleep seconds
  when "/free" then FREE.call((seconds * 1_000_000).to_i)
  when "/held" then HELD.call((seconds * 1_000_000).to_i)
  when "/cpu" then compute(seconds)
  end
  place = { "x-process" => Process.pid.to_s, "x-thread" => "#{Process.pid}/#{Thread.current.native_thread_id}" }
  [200, { "content-type" => "text/plain", **place }, ["Hello World"]]
}
