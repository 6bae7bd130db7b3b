# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # Gems keep their books with Thread.handle_interrupt. What comes by Fiber#raise obeys it.
  # Covers fiber_safety/uninterruptible.rb
  class HandleInterruptTest < Test
    include SpeaksHTTP

    # While the pool makes a connection, it holds its lock, and those who give one back wait.
    APP = <<~RUBY
      require "connection_pool"
      POOL = ConnectionPool.new(size: 3) do
        File.write("made", "x", mode: "a")
        sleep 0.005 while File.exist?("gate")
        Object.new
      end

      def hold
        HOLDER.push(Fiber.current)
        POOL.with { sleep 0.005 until File.exist?("enough"); File.write("leaves", "") }
        "not interrupted"
      rescue IOError => error
        error.message
      end
      HOLDER = []

      run lambda { |env|
        text = case env["PATH_INFO"]
               when "/use" then POOL.with { "used" }
               when "/hold" then hold
               when "/interrupt" then Fiber.scheduler.raise(HOLDER.first, IOError, "interrupted").to_s
               when "/available" then POOL.available.to_s
               end
        [200, { "content-type" => "text/plain" }, [text]]
      }
    RUBY

    def test_a_pool_loses_no_connection_if_its_user_is_interrupted_as_it_gives_it_back
      with_server(APP) do |server|
        assert_equal "used", server.get("/use").body
        server.write("gate", "")
        holder = client(to: server).request("GET", "/hold")
        eventually("it has the first connection") { server.get("/available").body == "2" }
        user = client(to: server).request("GET", "/use")
        eventually("another one is made") { File.read(server.path("made")) == "xx" }
        server.write("enough", "")
        eventually("the first one is given back") { File.exist?(server.path("leaves")) }
        server.get("/interrupt")
        File.delete(server.path("gate"))

        assert_equal %w[interrupted used], [holder, user].map { |client| client.response.body }
        assert_equal "3", server.get("/available").body
      end
    end
  end
end
