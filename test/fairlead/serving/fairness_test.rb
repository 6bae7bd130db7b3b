# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../burst"
require_relative "../../http_client"

module Fairlead
  # First come, first served; and what was started first goes on first.
  class FairnessTest < Test
    include Burst

    APP = <<~'RUBY'
      $order = []
      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      def cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
      def burn(seconds) = (ends = cpu + seconds; nil while cpu < ends)

      run lambda { |env|
        case env["PATH_INFO"]
        when "/hello" then [200, {}, ["hello"]]
        when %r{\A/number/(\d+)} then $order << $1; [200, {}, [$1]]
        when "/order" then [200, {}, [$order.join(" ")]]
        when "/passed" then [200, {}, [Fairlead.stats[:workers].sum { |worker| worker[:standbys] }.to_s]]
        when "/hog" then burn(0.3); [200, {}, ["hogged"]]
        when "/work" then burn(0.002); [200, {}, ["worked"]]
        when "/naps"
          late = Array.new(10) { started = now; sleep 0.02; now - started - 0.02 }
          [200, {}, [late.join(" ")]]
        when "/body" then [200, {}, [env["rack.input"].read.bytesize.to_s]]
        when "/yields" then started = now; 20.times { Async::Task.current.yield }; [200, {}, [(now - started).to_s]]
        end
      }
    RUBY

    # The hog has another thread lead. Where a busy machine has the lead go on to a third, that one may be quicker than the
    # second is with the request that it has just taken.
    def test_requests_start_in_the_order_in_which_they_came
      with_server(APP, "--queue-target", "0") do |server|
        sockets = Array.new(50) { server.connect }
        sockets.each { |socket| ask(socket, "/hello") } # from here on the worker holds them all
        hog = sockets.pop
        before = ask(hog, "/passed").to_i
        hog.write("GET /hog HTTP/1.1\r\nHost: a\r\n\r\n")
        sockets.shuffle!(random: Random.new(7))
        sockets.each_with_index do |socket, number|
          socket.write("GET /number/#{number} HTTP/1.1\r\nHost: a\r\n\r\n")
          sleep 0.001
        end
        [*sockets, hog].each { |socket| read_answer(socket) }
        passed = ask(hog, "/passed").to_i - before
        assert_in_order ask(hog, "/order").split.map(&:to_i), but_for: [passed - 1, 0].max
      ensure
        [*sockets, hog].compact.each(&:close)
      end
    end

    # With 40 connections that keep it at work, 2 ms each, who has to queue waits for 80 ms.
    timing def test_a_fiber_that_can_go_on_goes_before_new_requests
      with_server(APP, "--queue-target", "0", lint: false) do |server|
        flood(server, "/work", 40) do
          late = Array.new(3) { burst(server, ["/naps"])[0].body.split.map(&:to_f) }.flatten.sort
          assert_operator late[late.size / 2], :<, 0.04, "half of its naps are late by more"
        end
      end
    end

    timing def test_a_request_that_waits_for_its_body_goes_on_before_new_requests
      with_server(APP, "--queue-target", "0", lint: false) do |server|
        flood(server, "/work", 40) do
          assert_median_below(0.04, "the rest of a body is read") { seconds_until_the_rest_is_read(server) }
        end
      end
    end

    { "/hello" => 4, "/work" => 40 }.each do |path, count|
      define_method(:"test_a_fiber_that_yields_gets_its_turn_among_new_requests_for_#{path.delete("/")}") do
        with_server(APP) do |server|
          flood(server, path, count) do
            answer = burst(server, ["/yields"])[0]
            assert_equal 200, answer.status
            assert_operator answer.body.to_f, :<, 20
          end
        end
      end
    end

    # Its next request is always here before the present one is answered.
    def test_a_client_that_pipelines_without_end_does_not_keep_others_waiting
      with_server(APP) do |server|
        socket = server.connect
        requests = "GET /work HTTP/1.1\r\nHost: a\r\n\r\n" * 2000
        # Processes of their own: this one must not slow them down.
        writer = fork { socket.write(requests) while true }
        flowing, told = IO.pipe
        reader = fork do
          told.puts("flowing") while (read = read.to_i + socket.readpartial(1 << 20).bytesize)
        end
        told.close
        3.times { assert_equal "flowing\n", flowing.gets }

        assert_operator seconds_of_burst(server, ["/hello"] * 5), :<, 20
        flowing.read_nonblock(1 << 20, exception: false)
        assert_equal "flowing\n", flowing.gets, "it flows on"
      ensure
        [writer, reader].compact.each { |pid| Process.kill(:KILL, pid) and Process.wait(pid) }
        socket&.close
      end
    end

    # Neither ever waits for anything but the other, and the watch thread sees that fibers change.
    def test_two_that_pass_one_connection_to_each_other_do_not_keep_others_waiting
      with_server(<<~'RUBY', "--workers", "1") do |server|
        require "active_record"
        ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: ":memory:", max_connections: 1)
        run lambda { |env|
          next [200, {}, ["hello"]] if env["PATH_INFO"] == "/hello"

          ActiveRecord::Base.with_connection { sleep 0.05 } # the other one stands in line from here on
          queries = 0
          until File.exist?("over")
            ActiveRecord::Base.with_connection { |connection| connection.select_value("SELECT 1") }
            File.write("turns-#{env["QUERY_STRING"]}", "") if (queries += 1) == 50
          end
          [200, {}, [queries.to_s]]
        }
      RUBY
        pair = Array.new(2) { |number| Thread.new { server.get("/pass?#{number}").body.to_i } }
        eventually("both have had their turns") { Dir[server.path("turns-*")].size == 2 }
        assert_equal "hello", server.get("/hello").body
        assert pair.all?(&:alive?)
        server.write("over", "")
        assert_operator pair.map(&:value).min, :>=, 50
      end
    end

    private

    # The request begins once more of its body has come than is kept for it.
    def seconds_until_the_rest_is_read(server)
      socket = server.connect
      socket.write("POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 300001\r\n\r\n#{"x" * 300_000}")
      sleep 0.5
      seconds = duration do
        socket.write("x")
        assert_includes read_answer(socket), "300001"
      end
      seconds.tap { socket.close }
    end

    # So many connections that ask for the same again and again, while the block runs. It ends first for a reason:
    # what it looks at shall have come while all others did.
    def flood(server, path, count)
      reader, writer = IO.pipe
      pid = fork do
        reader.close
        sockets = Array.new(count) { server.connect }
        sockets.each { |socket| socket.write("GET #{path} HTTP/1.1\r\nHost: a\r\n\r\n") }
        answered = 0
        loop do
          IO.select(sockets)[0].each do |socket|
            socket.readpartial(4096)
            socket.write("GET #{path} HTTP/1.1\r\nHost: a\r\n\r\n")
            writer.puts("flowing") if (answered += 1) == 5 * count
          end
        end
      ensure
        exit!
      end
      writer.close
      assert_equal "flowing\n", reader.gets
      yield
    ensure
      Process.kill(:KILL, pid)
      Process.wait(pid)
      reader.close
    end

    def ask(socket, path)
      socket.write("GET #{path} HTTP/1.1\r\nHost: a\r\n\r\n")
      read_answer(socket)
    end

    def read_answer(socket) = HTTPClient.new(socket).response.body
  end
end
