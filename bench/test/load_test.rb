# frozen_string_literal: true

require_relative "../../test/helper"
require "stringio"
require_relative "../harness/cli"

module Bench
  # What the load generators ask is what a workload says, and what they count is what was answered.
  class LoadTest < Fairlead::Test
    needs :machine

    APP = <<~RUBY
      served = 0
      run lambda { |env|
        next [200, {}, [served.to_s]] if env["PATH_INFO"] == "/served"
        served += 1
        sleep env["QUERY_STRING"].to_f
        length = env["rack.input"]&.read.to_s.bytesize
        right = env.fetch("HTTP_X_LENGTH", length).to_i == length && env.fetch("HTTP_X_ASKED", "yes") == "yes"
        [right ? 200 : 400, {}, ["Hello World"]]
      }
    RUBY

    # What a generator asks of a server.
    Target = Struct.new(:port, :processes) do
      def url(path) = "http://127.0.0.1:#{port}#{path}"
      def connect = TCPSocket.new("127.0.0.1", port)
    end

    def asked(generator, seconds = 1)
      generator.run(Target.new(shared_server(APP).port), seconds)
    end

    def test_a_body_is_sent_whole_with_its_length
      figures = asked(Wrk.new(connections: 2, body: 100_000))

      assert_predicate figures[:requests], :positive?
      assert_equal [0, 0], figures.values_at(:errors, :non_2xx)
    end

    def test_headers_are_sent
      assert_equal 0, asked(Wrk.new(connections: 1, headers: { "X-Asked" => "yes" }))[:non_2xx]
      assert_operator asked(Wrk.new(connections: 1, headers: { "X-Asked" => "no" }))[:non_2xx], :>, 0
    end

    def test_pipelined_requests_are_counted_one_by_one_and_have_no_latency
      served = -> { shared_server(APP).get("/served").body.to_i }
      before = served.call
      figures = asked(Wrk.new(connections: 1, pipeline: 4))

      assert_operator figures[:requests], :>, 8
      assert_includes 0..4, served.call - before - figures[:requests], "those that it did not wait for"
      assert_nil figures[:p99]
    end

    def test_open_loop_requests_come_at_their_rate_and_wait_for_nobody
      figures = asked(OpenLoop.new(rate: 100, path: "/?0.2"))

      assert_in_delta 100, figures[:offered], 40
      assert_equal [0, 0, 0], figures.values_at(:errors, :non_2xx, :gave_up)
      assert_equal figures[:offered], figures[:requests]
      assert_operator figures[:p50], :>=, 200
      refute_includes figures, :recovered
    end

    def test_an_open_loop_latency_counts_the_wait_for_a_free_connection
      figures = asked(OpenLoop.new(rate: 60, path: "/?0.1", connections: 1, patience: 20))

      assert_operator figures[:max], :>=, 400
    end

    def test_those_that_have_lost_their_patience_are_counted_apart
      figures = asked(OpenLoop.new(rate: 50, path: "/?5", patience: 0.2, refusals: true))

      assert_equal [figures[:offered], 0, 0], figures.values_at(:gave_up, :requests, :errors)
      assert_operator asked(OpenLoop.new(rate: 50, path: "/?5", patience: 0.2))[:errors], :>, 10
    end

    REFUSES = <<~RUBY
      refusals = 0
      run lambda { |_env|
        sleep 0.2
        [503, (refusals += 1) > 10 ? {} : { "retry-after" => "1" }, ["later"]]
      }
    RUBY

    def test_refusals_are_no_faults_where_they_belong_to_the_picture_and_those_that_do_not_say_when_to_come_again_are_counted
      figures = with_server(REFUSES) { |server| OpenLoop.new(rate: 60, refusals: true).run(Target.new(server.port), 1.5) }

      assert_equal [figures[:offered], figures[:offered] - 10, 0, 0], figures.values_at(:refused, :bare, :non_2xx, :errors)
      # Who is not answered within five seconds has given up.
      assert_includes 200..5_500, figures[:refused_p99]
      assert_includes 200..5_500, figures[:refused_later_p99]
    end

    # Takes 0.3 s for each of the load's, and for those that come in the next 0.8 s.
    SLOW_FOR_A_WHILE = <<~RUBY
      started = nil
      run lambda { |_env|
        started ||= Process.clock_gettime(Process::CLOCK_MONOTONIC)
        sleep 0.3 if Process.clock_gettime(Process::CLOCK_MONOTONIC) < started + 1.8
        [200, {}, ["Hello World"]]
      }
    RUBY

    timing def test_how_long_requests_are_slow_after_the_load
      figures = with_server(SLOW_FOR_A_WHILE) { |server| OpenLoop.new(rate: 100, calm: 50).run(Target.new(server.port), 1) }

      assert_includes 400..1_200, figures[:recovered]
      assert_in_delta 100, figures[:calm_offered], 50
      assert_equal [figures[:calm_offered], 0], figures.values_at(:calm_answered, :calm_failed)
    end

    SLOWER_LATER = <<~RUBY
      started = nil
      run lambda { |_env|
        started ||= Process.clock_gettime(Process::CLOCK_MONOTONIC)
        sleep Process.clock_gettime(Process::CLOCK_MONOTONIC) < started + 2.5 ? 0.05 : 0.8
        [200, {}, ["Hello World"]]
      }
    RUBY

    timing def test_a_server_that_can_do_less_afterwards_is_seen
      figures = with_server(SLOWER_LATER) { |server| OpenLoop.new(share: 0.1).run(Target.new(server.port), 1) }

      assert_includes(-1.0..-0.5, figures[:drift])
    end

    timing def test_a_share_is_of_what_the_server_can_do_at_most
      figures = asked(OpenLoop.new(share: 0.5, path: "/?0.1", connections: 400))

      assert_includes 16..200, figures[:rate] # of 320: 32 connections, each of which can ask ten times a second
      assert_operator figures[:drift].abs, :<, 0.3, "of what it could do before"
    end

    def test_an_open_loop_latency_of_all_has_those_who_gave_up_with_their_patience
      figures = OpenLoop.new(patience: 0.2, path: "/?5").ask(Target.new(shared_server(APP).port), 50, 1)

      assert_equal [0, 200, 200], figures.values_at(:answered, :waited_p50, :waited_p99)
    end

    # Answers each request that it gets, as long as the connection stays.
    def test_an_open_loop_may_have_a_new_connection_for_each_request
      connections = [true, false].map do |keep_alive|
        listener = TCPServer.new("127.0.0.1", 0)
        accepted = []
        accepting = Thread.new { loop { accepted << Thread.new(listener.accept) { |socket| answer_all(socket) } } }
        figures = OpenLoop.new(keep_alive:).ask(Target.new(listener.local_address.ip_port), 50, 1)
        assert_equal figures[:offered], figures[:answered]
        accepted.size.fdiv(figures[:offered])
      ensure
        [accepting, *accepted].each { |thread| thread.kill.join }
        listener.close
      end

      assert_operator connections.first, :<, 1
      assert_in_delta 1, connections.last
    end

    def answer_all(socket)
      socket.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") while socket.gets("\r\n\r\n")
    rescue SystemCallError
      nil
    ensure
      socket.close
    end

    timing def test_busy_connections_beside_new_ones
      figures = asked(KeepAliveBesideNew.new(connections: 4, share: 0.1, path: "/?0.05"))

      assert_equal [0, 0], figures.values_at(:errors, :non_2xx)
      assert_in_delta 8, figures[:rate], 1, "a tenth of what four connections can ask in 50 ms each"
      assert_in_delta 80, figures[:kept_per_second], 15
      assert_operator figures.values_at(:p50, :kept_p50).min, :>=, 50
      assert_in_delta 1, figures[:new_to_kept], 0.3
    end

    # Every third stream gets nothing at all.
    RELAY = <<~'RUBY'
      require "net/http"
      asked = 0
      relay = lambda { |port, stream|
        Net::HTTP.start("127.0.0.1", port) do |http|
          http.request(Net::HTTP::Post.new("/")) do |response|
            response.read_body { |part| part.scan(/token~\d+~/) { |token| stream.write(token) } }
          end
        end
      }
      run lambda { |env|
        next [200, {}, ["Hello World"]] unless env["PATH_INFO"] == "/stream"
        sleep if (asked += 1) % 3 == 0
        body = lambda do |stream|
          relay.call(env["QUERY_STRING"].to_i, stream)
        rescue SystemCallError, IOError
          nil
        ensure
          stream.close
        end
        [200, { "content-type" => "text/event-stream" }, body]
      }
    RUBY

    timing def test_streams_get_the_tokens_of_the_model_beside_pages
      figures = with_server(RELAY, "--drain-timeout", "0.1", lint: false) do |server|
        target = Target.new(server.port, ProcessTree.new(server.pid))
        StreamsBesidePages.new(streams: 9, tokens: 10, share: 0.1).run(target, 2)
      end

      assert_equal [6, 0, 0], figures.values_at(:streams, :errors, :non_2xx)
      assert_in_delta 60, figures[:tokens_per_second], 6
      assert_in_delta 100, figures[:gap_p50], 10
      assert_in_delta 1, figures[:rate_spread], 0.1
      assert_operator figures[:delay_p99], :<, 50
      assert_in_delta figures[:rate], figures[:requests_per_second], figures[:rate] * 0.1
      assert_in_delta figures[:slowdown], figures[:p99] / figures[:alone_p99]
    end

    def test_a_crowd_that_waits_is_measured_while_all_of_them_do
      server = with_server(APP)
      crowd = Crowd.new(connections: 100, path: "/?2.5", waiting: 2.5)
      target = Target.new(server.port, ProcessTree.new(server.pid))
      figures = crowd.run(target, 1)

      assert_equal [200, 0], figures.values_at(:requests, :errors)
      assert_operator figures[:kilobytes_each], :>, 2
    end

    # Answers each, and then does with every second connection what is asked of it.
    def crowd_of(crowd, before: 0, &block)
      listener = TCPServer.new("127.0.0.1", 0)
      threads = []
      accepting = Thread.new do
        while (socket = listener.accept)
          threads << Thread.new(socket, threads.size.even?) { |client, even| answer(client, before, even, &block) }
        end
      end
      crowd.run(Target.new(listener.local_address.ip_port, ProcessTree.new(Process.pid)), 1)
    ensure
      [accepting, *threads].each { |thread| thread&.kill&.join }
      listener.close
    end

    def answer(client, before, even)
      client.gets("\r\n\r\n")
      sleep before
      client.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
      yield client if even
      client.read
    rescue SystemCallError, IOError
      nil
    ensure
      client.close
    end

    def test_connections_of_a_crowd_that_the_server_closes_are_counted
      assert_equal [0, 50], crowd_of(Crowd.new(connections: 100), &:close).values_at(:errors, :closed_by_server)
    end

    def test_a_connection_with_bytes_that_nobody_has_read_is_not_closed
      figures = crowd_of(Crowd.new(connections: 100)) do |client|
        sleep 0.3
        client.write("more")
      end

      assert_equal 0, figures[:closed_by_server]
    end

    def test_of_a_crowd_that_waits_those_are_closed_that_are_gone_when_it_is_measured
      figures = crowd_of(Crowd.new(connections: 100, waiting: 2.5), before: 2.5, &:close)

      assert_equal [0, 0], figures.values_at(:errors, :closed_by_server)
    end
  end

  class ProgressTest < Minitest::Test
    def test_the_time_left_is_that_of_all_workloads
      output = StringIO.new
      progress = Progress.new(output)
      progress.plan("first", 10)
      progress.plan("second", 7200)
      progress.start(1, "first")
      progress.step(1, "fairlead", [])

      assert_match(/\A\[2:00:00 left\] round 1 fairlead/, output.string)
    end
  end
end
