# frozen_string_literal: true

require_relative "../../../helper"
require_relative "../../../stalls"

module Fairlead
  # The lead has gone to another thread while a request blocked. What wakes that request afterwards must reach the thread
  # that has it, though another one waits for everything that happens.
  class WakeUpTest < Test
    include SpeaksHTTP

    APP = <<~RUBY
      $LOAD_PATH.unshift #{File.expand_path("../../../../examples/cwork/lib", __dir__).inspect}
      require "cwork"

      run lambda { |env|
        if env["PATH_INFO"] == "/nap"
          sleep 0.2
        else
          reader, writer = IO.pipe
          Thread.new { sleep 0.01; writer.close }
          reader.read
          File.write("begun", "")
          Cwork.without_gvl(0.1)
          queue = Thread::Queue.new
          Thread.new { sleep 0.4; queue << 1 }
          queue.pop
        end
        [200, {}, ["done"]]
      }
    RUBY

    def test_a_request_is_woken_that_waits_in_a_thread_without_the_lead
      with_server(APP, "-w", "1") do |server|
        3.times do
          FileUtils.rm_f(server.path("begun"))
          waiting = client(to: server, timeout: 20).write("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
          eventually("it blocks") { File.exist?(server.path("begun")) }
          napping = client(to: server).write("GET /nap HTTP/1.1\r\nHost: a\r\n\r\n")

          assert_operator duration { assert_equal "done", waiting.response.body }, :<, 15
          assert_equal "done", napping.response.body
        end
      end
    end
  end
end
