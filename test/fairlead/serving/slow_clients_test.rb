# frozen_string_literal: true

require "json"
require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # A slow client costs a connection and some bytes, but no fiber, until limits are reached; then it is held back, and a
  # stalled one is dropped.
  class SlowClientsTest < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      require "json"
      $calls = Hash.new(0)
      $steps = Hash.new(0)
      APPS = {
        "/stats" => ->(_) { [200, {}, [JSON.dump(Fairlead.stats[:workers].first.merge(calls: $calls, steps: $steps))]] },
        "/quick" => ->(_) { [200, {}, ["quick"]] },
        "/upload" => ->(env) { [200, {}, [env["rack.input"].read.bytesize.to_s]] },
        "/download" => ->(env) { [200, {}, ["x" * Integer(env["QUERY_STRING"])]] },
        "/parts" => ->(env) {
          size = Integer(env["QUERY_STRING"])
          [200, {}, Enumerator.new { |out| (size / 10_000).times { out << "x" * 10_000; $steps[size] += 10_000 } }]
        }
      }
      run ->(env) { $calls[env["PATH_INFO"]] += 1; APPS.fetch(env["PATH_INFO"]).call(env) }
    RUBY

    # The first byte of TCP_INFO is the state of a connection (linux/tcp.h).
    ESTABLISHED = 1
    FLAGS = %w[--body-buffer 100000 --response-buffer 10000000 --queue-target 0].freeze

    def server = @server ||= shared_server(APP, *FLAGS)

    # A server of little patience.
    def be_impatient
      @server = shared_server(APP, *FLAGS, "--write-timeout", "2", "--body-timeout", "2", name: :impatient)
    end

    def stats = JSON.parse((@asking ||= client).get("/stats").body)

    # Of others than the one that asks: it was not running yet when the loop last showed its figures, unless the machine is
    # busy, and the watch thread has shown them since.
    def in_flight = stats["in_flight"]

    def eventually_in_flight(count) = eventually("#{count} in flight") { in_flight == count }

    def small_client(receive: 4096)
      socket = Socket.new(:INET, :STREAM)
      socket.setsockopt(:SOCKET, :RCVBUF, receive)
      socket.connect(Addrinfo.tcp("127.0.0.1", server.port))
      HTTPClient.new(socket).tap { |client| (@clients ||= []) << client }
    end

    def test_a_thousand_clients_that_dribble_cost_nobody_anything
      heads = "GET /quick HTTP/1.1\r\nHost: a\r\n\r\n"
      bodies = "PUT /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\n\r\n#{"x" * 30}"
      clients = Array.new(1000) { |number| [client, number.even? ? heads : bodies] }
      dribbled = [heads.size, bodies.size].min - 2
      dribbled.times do |at|
        clients.each { |client, request| client << request[at] }
        assert_operator duration { assert_equal "quick", client.get("/quick").body }, :<, 15 if (at % 8).zero?
        eventually_in_flight(0) if (at % 16).zero?
      end
      eventually_in_flight(0)
      clients.each { |client, request| client << request[dribbled..] }
      clients.each { |client, request| assert_equal request == heads ? "quick" : "30", client.response.body }
    end

    def test_a_response_to_a_slow_reader_is_kept_and_the_fiber_is_free
      client = small_client
      client.request("GET", "/parts?8000000")
      eventually("the whole response is written") { stats["steps"]["8000000"] == 8_000_000 && in_flight.zero? }
      assert_equal 8_000_000, client.response.body.size
    end

    def test_beyond_the_limit_the_app_is_held_back
      client = small_client
      client.request("GET", "/parts?20000000")
      written = settled { stats["steps"]["20000000"].to_i }
      assert_operator written, :<, 20_000_000
      assert_operator written, :>=, 9_000_000
      eventually_in_flight(1)
      assert_equal 20_000_000, client.response.body.size
      eventually_in_flight(0)
    end

    def test_an_array_beyond_the_limit_is_held_back_too
      client = small_client
      client.request("GET", "/download?30000000")
      eventually_in_flight(1)
      assert_equal 30_000_000, client.response.body.size
    end

    def test_a_reader_that_stalls_is_dropped_whoever_has_its_response
      be_impatient
      { "/download?8000000" => 0, "/parts?30000000" => 1 }.each do |path, fibers|
        stats # the connection that asks counts from the next time on
        before = stats["connections"]
        client = small_client
        client.request("GET", path)
        client.line
        took = duration { eventually("it is dropped") { client.socket.getsockopt(:TCP, :INFO).data.unpack1("C") != ESTABLISHED } }
        assert_operator took, :<, 20
        eventually("nothing is left of it") { in_flight.zero? && stats["connections"] <= before }
        # Which of the app's responses was held back is known though it was so for a short time only.
        assert_equal fibers == 1, stats["steps"].any? { |size, steps| size == "30000000" && steps < 30_000_000 }, path
      end
    end

    # Twice the time that is allowed without progress.
    def test_a_reader_that_is_slow_but_alive_is_not_dropped
      be_impatient
      client = small_client
      client.request("GET", "/download?8000000")
      20.times do
        assert_equal 200_000, client.read(200_000).size
        sleep 0.2
      end
      client.read(4_000_000)
    end

    def test_an_upload_up_to_the_limit_is_read_before_the_app_is_called
      client = client()
      before = stats["calls"]["/upload"].to_i
      client << "PUT /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n#{"x" * 99_999}"
      3.times { eventually_in_flight(0) }
      assert_equal before, stats["calls"]["/upload"].to_i
      client << "x"
      assert_equal "100000", client.response.body
    end

    def test_a_larger_upload_is_streamed_however_slowly_it_comes
      be_impatient
      client = client()
      client << "PUT /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 150000\r\n\r\n#{"x" * 100_000}"
      # The client must not pause for longer, however slowly it is answered here.
      seen = Array.new(20) do
        client << ("x" * 2500)
        sleep 0.2
        in_flight
      end
      assert_operator seen.max, :>=, 1
      assert_equal "150000", client.response.body
      eventually_in_flight(0)
    end

    # For twice the time that it may pause, at the rate of a bad line.
    def test_a_slow_upload_that_goes_on_is_received
      be_impatient
      [1_000, 4_000].each do |size|
        client = client()
        client << "PUT /upload HTTP/1.1\r\nHost: a\r\nContent-Length: #{size}\r\n\r\n"
        (size / 50).times { (client << ("x" * 50)) && sleep(4.0 / (size / 50)) }
        assert_equal "200 #{size}", client.response.then { |answer| "#{answer.status} #{answer.body}" }
      end
    end

    def test_an_upload_that_stalls_gives_its_fiber_back
      be_impatient
      client = client()
      client << "PUT /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 150000\r\n\r\n#{"x" * 100_000}"
      eventually("it has a fiber") { (client << "x") && in_flight == 1 } # until it is seen, it goes on
      eventually_in_flight(0)
      client.rest # it ends, whatever was answered
    end

    private

    # The value once it has been the same for a while, on a busy machine too.
    def settled
      seen = []
      until seen.size > 8 && seen.last(8).uniq.size == 1 && seen.last.positive?
        seen << yield
        sleep 0.1
      end
      seen.last
    end
  end
end
