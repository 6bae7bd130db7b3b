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

    LOAD_SECONDS = 3
    # What a load generator asks of a server.
    Target = Struct.new(:port) { def url(path) = "http://127.0.0.1:#{port}#{path}" }

    # The next request of each client is there before the worker has answered the last of the others.
    def test_a_worker_drains_while_requests_follow_each_other
      with_server(APP, "--drain-timeout", "30", "--queue-target", "0") do |server|
        clients = Array.new(8) { Thread.new { ask_on(server.port, "/compute") } }
        eventually("the worker is busy") { clients.all? { |client| client[:answers].to_i > 2 } }
        server.stop

        refute_includes server.log, "it is killed"
        clients.each(&:value)
      end
    end

    # Requests at so many times of what can be served, for clients that wait a second; after them come half as many as can
    # be served.
    #
    # @return [Array<String>] what was not as it should be.
    def trouble(server, times)
      able = able(server)
      load = Bench::OpenLoop.new(rate: able * times, path: "/compute", connections: 4000, patience: 1, refusals: true, calm: able / 2)
      figures, granted = with_the_cpu(server) { load.run(Target.new(server.port), LOAD_SECONDS) }
      assert_equal [0, 0, 0], [*figures.values_at(:errors, :non_2xx), figures.fetch(:bare, 0)], "errors, other answers, 503 without Retry-After"
      served = figures[:requests_per_second] / granted / able
      {
        # At once the capacity itself, some moments are idle. The machine's speed moves between the measurements; with a limit on the
        # wait alone, less than half would be served.
        "#{served.round(3)} of what can be served is" => times > 1 && served < 0.75,
        "#{figures[:gave_up]} give up" => figures[:gave_up] > able * times * LOAD_SECONDS / 5,
        # Who comes in the first second may be of a burst; of twice the capacity some wait their turn in vain.
        "503 takes #{figures[:refused_later_p99]} ms" => times > 2 && figures.fetch(:refused_later_p99, Float::INFINITY) > 700,
        "it takes #{figures[:recovered]} ms until all is as before" => figures[:recovered] > 2000
      }.select { |_, holds| holds }.keys
    end

    # @return [Float] how many requests to /compute it can serve in a second.
    def able(server) = Bench::Wrk.new(connections: 8, path: "/compute").run(Target.new(server.port), 1)[:requests_per_second]

    # What else runs on this machine takes from all that is measured, but not alike.
    #
    # @yieldreturn [Hash] figures
    # @return [Array(Hash, Float)] them, and the part of the time for which the workers' threads ran while they could have
    #   (https://docs.kernel.org/scheduler/sched-stats.html).
    def with_the_cpu(server)
      before = cpu(server)
      figures = yield
      ran, waited = cpu(server).map { |thread, times| times.zip(before.fetch(thread, [0, 0])).map { |after, earlier| after - earlier } }.transpose.map(&:sum)
      [figures, ran.fdiv(ran + waited)]
    end

    def cpu(server)
      threads = server.worker_pids.flat_map { |pid| Dir["/proc/#{pid}/task/*/schedstat"] }
      threads.to_h { |path| [path, (File.read(path) rescue "0 0").split.first(2).map(&:to_i)] } # one may have just ended
    end

    # @param rounds [Integer] of which the median counts: two workers and their load share the processors with the rest of the machine.
    def assert_sheds_well(workers, *loads, rounds: 1)
      server = with_server(APP, "-w", workers.to_s)
      loads.each do |times|
        troubles = Array.new(rounds) { trouble(server, times) }.sort_by(&:size)
        assert_empty troubles[rounds / 2], "at #{times} times of what can be served"
      end
    end

    timing def test_as_much_as_can_be_served_is_served_and_of_more_the_rest_is_told_so_at_once
      assert_sheds_well(1, 1, 2, 10)
    end

    timing def test_so_it_is_with_several_workers
      assert_sheds_well(2, 5, rounds: 3)
    end

    # Each asks again only once it has its answer: however long they wait, it gets no longer.
    def test_a_crowd_that_waits_its_turn_is_served
      server = with_server(APP, "-w", "2", "--queue-timeout", "120")
      figures = Bench::Wrk.new(connections: 160, path: "/slower").run(Target.new(server.port), LOAD_SECONDS)
      assert_equal 0, figures[:non_2xx]
    end

    def test_a_burst_is_served
      server = with_server(APP, "--queue-timeout", "120")
      assert_operator seconds_of_burst(server, Array.new(250) { "/compute" }, within: 120), :>, 2
    end

    # Those that wait in their fibers stand in no line. A connection for which there is no place waits a second, until its
    # client's system asks again.
    timing def test_two_thousand_connections_that_come_within_a_second_are_all_served_and_requests_that_sleep_never_turned_away
      seconds_of_burst(with_server(APP), Array.new(2000) { "/sleep" })
      assert_operator @seconds_of_connecting, :<, 1
    end

    private

    # Asks on one connection, again and again, until that is closed.
    def ask_on(port, path)
      socket = TCPSocket.new("127.0.0.1", port)
      loop do
        socket.write("GET #{path} HTTP/1.1\r\nHost: a\r\n\r\n")
        socket.readpartial(4096)
        Thread.current[:answers] = Thread.current[:answers].to_i + 1
      end
    rescue EOFError, SystemCallError
      nil
    ensure
      socket&.close
    end
  end
end
