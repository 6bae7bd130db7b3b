# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # Tasks that write to the stream of a callable body after it has returned.
  class StreamTasksTest < Test
    APP = <<~'RUBY'
      require "async"
      $running = 0
      count = lambda do |&block|
        $running += 1
        block.call
      ensure
        $running -= 1
      end
      BODIES = {
        "/nested" => ->(stream) { Async { |task| task.async { sleep 0.05; stream.write("written"); stream.close } } },
        "/silent" => ->(_) { Async { count.call { sleep } } },
        "/silent_nested" => ->(_) { Async { |task| task.async { |child| child.async { count.call { sleep } } } } },
      }
      run(lambda do |env|
        body = BODIES[env["PATH_INFO"]]
        [200, {}, body || [$running.to_s]]
      end)
    RUBY

    def server = shared_server(APP, "--cancel-abandoned", lint: false)

    def test_a_task_of_a_task_writes
      assert_equal "written", server.get("/nested").body
    end

    %w[silent silent_nested].each do |path|
      define_method("test_#{path}_tasks_are_told_when_the_client_has_gone") do
        sockets = Array.new(2) { server.connect.tap { |socket| socket.write("GET /#{path} HTTP/1.1\r\nHost: localhost\r\n\r\n") } }
        eventually("the tasks") { server.get("/").body == "2" }
        sockets.each(&:close)
        eventually("their end") { server.get("/").body == "0" }
      end
    end
  end
end
