# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../burst"
require_relative "../../../bench/harness/cli"

module Fairlead
  # When more comes than can be served: as much is served as ever, and the rest is told so at once.
  class OverloadTest < Test
    include Burst

    # /compute takes 10 ms of CPU; /slower 30 ms.
    APP = <<~'RUBY'
      def cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
      def burn(seconds) = (ends = cpu + seconds; nil while cpu < ends)

      run lambda { |env|
        case env["PATH_INFO"]
        when "/compute" then burn(0.01)
        when "/slower" then burn(0.03)
        when "/sleep" then sleep 0.5
        end
        [200, { "content-type" => "text/plain" }, ["done"]]
      }
    RUBY

    # For how long the control asks, and for how long all do.
    SECONDS = 2
    LOAD_SECONDS = 3

    # What a load generator asks of a server.
    Target = Struct.new(:port) { def url(path) = "http://127.0.0.1:#{port}#{path}" }

    # @return [Float] how many requests a second are served to a few that wait for each answer.
    def capacity(server)
      Bench::Wrk.new(connections: 8, path: "/compute").run(Target.new(server.port), SECONDS)[:requests_per_second]
    end

    def overload(server, rate, path, patience: 1)
      Bench::OpenLoop.new(rate:, path:, connections: 4000, patience:, refusals: true).run(Target.new(server.port), LOAD_SECONDS)
    end

    def assert_sheds_well(workers, times)
      server = with_server(APP, "-w", workers.to_s)
      figures = nil
      # What else runs on this machine takes from the one and the other, but not alike.
      assert_one_below(1 / 0.75, "capacity to goodput", unit: "×", tries: 3) do
        able = capacity(server)
        figures = overload(server, able * times, "/compute")
        able / figures[:requests_per_second]
      end
      assert_equal [0, 0], figures.values_at(:errors, :non_2xx)
      assert_operator figures[:refused], :>, figures[:offered] / 5
      assert_operator figures[:gave_up], :<, figures[:offered] / 5 # at first, where one takes long
      assert_operator figures[:refused_p50], :<, 100, "who is turned away is told so at once"
      assert_operator figures[:p50], :<, 900
      assert_normal_again(server)
    end

    def assert_normal_again(server)
      sleep 1 # as long as it may take
      answers = Array.new(20) { server.get("/compute") }
      assert_equal ["200"], answers.map(&:code).uniq
    end

    def test_at_ten_times_of_what_can_be_served_as_much_is_served_and_the_rest_is_told_so_at_once
      assert_sheds_well(1, 10)
    end

    def test_so_it_is_with_several_workers
      assert_sheds_well(2, 5)
    end

    # Each asks again only once it has its answer: however long they wait, it gets no longer.
    def test_a_crowd_that_waits_its_turn_is_served
      server = with_server(APP, "-w", "2")
      figures = Bench::Wrk.new(connections: 160, path: "/slower").run(Target.new(server.port), LOAD_SECONDS)
      assert_equal 0, figures[:non_2xx]
    end

    def test_a_burst_is_served
      server = with_server(APP)
      assert_operator seconds_of_burst(server, Array.new(250) { "/compute" }), :>, 2
    end

    # Those that wait in their fibers stand in no line. A connection for which there is no place waits a second, until its
    # client's system asks again.
    def test_two_thousand_connections_that_come_within_a_second_are_all_served_and_requests_that_sleep_never_turned_away
      server = with_server(APP)
      assert_one_below(1, "connecting") do
        seconds_of_burst(server, Array.new(2000) { "/sleep" })
        @seconds_of_connecting
      end
    end
  end
end
