# frozen_string_literal: true

require_relative "ecosystem"
require_relative "../http_client"

module Fairlead
  # rack-timeout, which raises in the thread that a request has elsewhere.
  # Covers integrations/rack_timeout.rb
  class RackTimeoutTest < EcosystemTest
    include SpeaksHTTP

    APP = <<~RUBY
      $LOAD_PATH.unshift #{File.join(ROOT, "examples/cwork/lib").inspect}
      require "cwork"
      require "rack-timeout"
      Rack::Timeout::Logger.disable
      use Rack::Timeout, service_timeout: 2

      def compute(seconds)
        limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
        nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < limit
      end

      run lambda { |env|
        case env["PATH_INFO"]
        when "/wait" then sleep 30
        when "/block" then Cwork.without_gvl(2.5)
        when "/block-and-wait" then Cwork.without_gvl(2.5).then { sleep 30 }
        when "/compute-and-wait" then compute(2.3).then { sleep 30 }
        when "/rescue"
          begin
            sleep 30
          rescue Rack::Timeout::RequestTimeoutException => error
            rescued = error.class
          end
        else compute(0.002).then { sleep 0.001 }.then { compute(0.002) }
        end
        [200, { "content-type" => "text/plain" }, [rescued.to_s]]
      }
    RUBY

    def server = @server ||= shared_server(APP, env: BUNDLE)

    # Threads of a test shall find it.
    def setup
      super
      server
    end

    def test_it_is_the_request_whose_time_is_up_that_is_told_and_no_other
      going = true
      others = Array.new(4) do
        Thread.new do
          client = client()
          statuses = []
          statuses << client.get("/").status while going
          statuses
        end
      end
      late = Array.new(5) { Thread.new { client(timeout: 60).get("/wait").status } }.map(&:value)
      going = false

      assert_each_equal 500, late, server
      assert_each_equal 200, others.flat_map(&:value), server
    end

    def test_one_that_blocks_or_computes_is_told_at_its_next_wait
      assert_equal 500, client.get("/block-and-wait").status
      assert_equal 500, client.get("/compute-and-wait").status
      assert_equal 200, client.get("/").status
    end

    def test_one_that_never_waits_after_its_time_is_not_told
      assert_equal 200, client.get("/block").status
      assert_equal 200, client.get("/").status
    end

    def test_an_app_can_rescue_it
      answer = client.get("/rescue")

      assert_equal [200, "Rack::Timeout::RequestTimeoutException"], [answer.status, answer.body]
    end

    def test_who_is_in_time_is_never_told
      statuses = Array.new(8) { Thread.new { client.then { |client| Array.new(50) { client.get("/").status } } } }.flat_map(&:value)

      assert_each_equal 200, statuses, server
      sleep 2.1 # the time of each is up by then
      assert_equal 200, client.get("/").status
    end
  end
end
