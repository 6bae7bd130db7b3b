# frozen_string_literal: true

require "json"
require_relative "../../helper"

module Fairlead
  # What `sleep` takes, returns and refuses, in a request as in a thread.
  class SleepTest < Test
    APP = <<~'RUBY'
      require "json"
      def divided(*parts) = Class.new { define_method(:divmod) { |_| parts } }.new
      INTERVALS = [
        "in", :a, true, Time.now, -1, -0.1, -1r, 0, 0.01, 1/100r, divided(0, 0.01), divided(-1, 0), Float::NAN, Float::INFINITY, 2**70
      ].freeze

      # The number itself is how long the machine let it sleep.
      def result(interval)
        sleep(interval).class.name
      rescue StandardError => error
        [(error.is_a?(RangeError) ? RangeError : error.class).name, (error.message unless error.is_a?(RangeError))]
      end

      def results = INTERVALS.map { |interval| result(interval) }
      def for_ever
        queue = Queue.new
        thread = Thread.new { queue.push("popped") }
        [queue.pop(timeout: Float::INFINITY), Thread.new { sleep 0.01 }.join(Float::INFINITY).class.name, thread.join.class.name]
      end
      run ->(env) { [200, {}, [env["PATH_INFO"] == "/for_ever" ? for_ever.join(" ") : JSON.dump(fiber: results, thread: Thread.new { results }.value, after: sleep(0))]] }
    RUBY

    def server = shared_server(APP)

    def test_a_wait_without_an_end_may_be_infinite
      assert_equal "popped Thread Thread", server.get("/for_ever").body
    end

    def test_it_takes_and_refuses_what_it_does_in_a_thread
      answer = JSON.parse(server.get.body)

      assert_equal answer["thread"], answer["fiber"]
      assert_equal ["TypeError", "can't convert String into time interval"], answer["fiber"].first
    end
  end
end
