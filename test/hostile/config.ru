# frozen_string_literal: true

# What hostile clients are let loose on.
require "json"

LARGE = ("x" * 1_000_000).freeze
HUGE = ("x" * 20_000_000).freeze # more than is kept for anybody
TEXT = { "content-type" => "text/plain" }.freeze

run(lambda do |env|
  case env["PATH_INFO"]
  when "/upload" then [200, TEXT.dup, [env["rack.input"].read.to_s.bytesize.to_s]]
  when "/large" then [200, TEXT.dup, [LARGE]]
  when "/huge" then [200, TEXT.dup, [HUGE]]
  when "/page" then sleep(0.01) && [200, TEXT.dup, ["a page"]]
  when "/sleep" then sleep(0.2) && [200, TEXT.dup, ["slept"]]
  when "/file" then [200, TEXT.dup, [File.read("config.ru")]]
  when "/stats" then [200, TEXT.dup, [JSON.generate(Fairlead.stats[:workers].first)]]
  else [200, TEXT.dup, ["hello"]]
  end
end)
