# frozen_string_literal: true

require "digest"
require_relative "ecosystem"
require_relative "../burst"
require_relative "../http_client"

module Fairlead
  # Async's clients inside a request: they run on the scheduler that is there already.
  class AsyncEcosystemTest < EcosystemTest
    include Burst
    include SpeaksHTTP
    needs :database

    BACKEND = <<~'RUBY'
      require "digest"
      STREAM_WITHOUT_END = lambda do |stream|
        (0..).each { |n| stream.write("chunk #{n}\n"); sleep 0.005 }
      ensure
        stream.close
      end
      map("/wait") { run ->(_) { sleep 0.2; [200, { "content-type" => "text/plain" }, ["waited"]] } }
      map("/large") { run ->(_) { [200, { "content-type" => "text/plain" }, Enumerator.new { |out| 200.times { |n| out << n.to_s * 50_000 } }] } }
      map("/digest") do
        run lambda { |env|
          digest = Digest::SHA256.new
          while (part = env["rack.input"].read(100_000))
            digest << part
          end
          [200, { "content-type" => "text/plain" }, [digest.hexdigest]]
        }
      end
      map("/endless") { run ->(_) { [200, { "content-type" => "text/plain" }, STREAM_WITHOUT_END] } }
      map("/in-flight") { run ->(_) { [200, {}, [Fairlead.stats[:workers].sum { |worker| worker[:in_flight] }.to_s]] } }
      map("/streams") { run ->(_) { [200, {}, [Fairlead.stats[:workers].sum { |worker| worker[:streams] }.to_s]] } }
    RUBY

    APP = <<~'RUBY'
      require "async/barrier"
      require "async/http/endpoint"
      require "async/http/client"
      require "async/redis"
      require "async/semaphore"

      ENDPOINT = Async::HTTP::Endpoint.parse(ENV.fetch("BACKEND"))
      # A client keeps its connections from one request to the next; they belong to the thread's scheduler.
      Thread.attr_accessor :backend, :redis
      def backend = (Thread.current.backend ||= Async::HTTP::Client.new(ENDPOINT))
      def redis = (Thread.current.redis ||= Async::Redis::Client.new(Async::Redis::Endpoint.parse(ENV.fetch("TEST_REDIS_URL"))))
      $cleaned = []

      def first_of(barrier)
        barrier.async { sleep 60 }
        barrier.async { sleep 0.01; :first }
        barrier.wait { |task| return task.wait.to_s }
      ensure
        barrier.stop
      end

      def wait_long(barrier)
        3.times { barrier.async { sleep 60 } }
        File.write("waiting", "")
        barrier.wait
      ensure
        $cleaned << barrier.size
        barrier.stop
      end

      PAGES = {
        "/get" => ->(_) { backend.get("/wait").read },
        "/barrier" => lambda { |_|
          barrier = Async::Barrier.new
          tasks = Array.new(10) { barrier.async { backend.get("/wait").read } }
          barrier.wait
          tasks.map(&:wait).tally.inspect
        },
        "/semaphore" => lambda { |_|
          barrier = Async::Barrier.new
          semaphore = Async::Semaphore.new(5, parent: barrier)
          most = running = 0
          10.times { semaphore.async { most = [most, running += 1].max; backend.get("/wait").read; running -= 1 } }
          barrier.wait
          most.to_s
        },
        "/first" => ->(_) { first_of(Async::Barrier.new) },
        "/redis" => lambda { |env|
          key = "fairlead:#{env["QUERY_STRING"]}"
          redis.set(key, env["QUERY_STRING"])
          value = redis.get(key)
          redis.del(key)
          value
        },
        "/blocking-redis" => lambda { |env|
          waiting = Async { redis.call("BLPOP", "fairlead:#{env["QUERY_STRING"]}", 10) }
          sleep 0.02
          redis.call("RPUSH", "fairlead:#{env["QUERY_STRING"]}", "pushed")
          waiting.wait.last
        },
        "/cancelled" => ->(_) { wait_long(Async::Barrier.new) },
        "/cleaned" => ->(_) { $cleaned.inspect }
      }

      # Async's client writes it in a task of its own, while the request waits for the response.
      class Upload < Protocol::HTTP::Body::Readable
        def initialize(input) = @input = input
        def read = @input.read(65_536)
      end

      PROXY = lambda { |env|
        path = env["PATH_INFO"].delete_prefix("/proxy")
        response = env["REQUEST_METHOD"] == "PUT" ? backend.put(path, {}, Upload.new(env["rack.input"])) : backend.get(path)
        [response.status, { "content-type" => response.headers["content-type"] }, Rack::BodyProxy.new(response.body) { response.close }]
      }

      run lambda { |env|
        next PROXY.call(env) if env["PATH_INFO"].start_with?("/proxy/")

        [200, { "content-type" => "text/plain" }, [PAGES.fetch(env["PATH_INFO"]).call(env)]]
      }
    RUBY

    def setup
      super
      @backend = shared_server(BACKEND, "--stream-request-bodies", name: :backend, env: BUNDLE)
      @server = served("--cancel-abandoned", "--stream-request-bodies", name: :server)
    end

    def served(*flags, name:)
      shared_server(APP, *flags, name:, env: BUNDLE.merge("BACKEND" => @backend.address, "TEST_REDIS_URL" => ENV["TEST_REDIS_URL"]))
    end

    def test_a_client_waits_without_holding_up_others
      assert_operator seconds_of_burst(@server, ["/get"] * 150), :<, 20 # one after the other: 30 s
    end

    def test_a_barrier_and_a_semaphore_of_requests_to_another_server
      assert_equal({ "waited" => 10 }.inspect, @server.get("/barrier").body)
      assert_equal "5", @server.get("/semaphore").body
      assert_equal "first", @server.get("/first").body
    end

    def test_a_response_is_passed_on_as_it_comes = assert_passed_on(@server)

    # A client that has gone is noticed when something is sent to it.
    def test_so_it_is_where_requests_that_are_abandoned_go_on = assert_passed_on(served(name: :without_flags))

    def assert_passed_on(server)
      assert_equal Array.new(200) { |n| n.to_s * 50_000 }.join, server.get("/proxy/large").body
      client = client(to: server)
      client.request("GET", "/proxy/endless")
      seen = +""
      seen << client.some until seen.include?("chunk 3")

      client.close
      eventually("the other server has been left too") { @backend.get("/streams").body == "0" }
    end

    def test_an_upload_is_passed_on_as_it_comes
      part = Random.bytes(1_000_000)
      client = client(to: @server)
      client.write("PUT /proxy/digest HTTP/1.1\r\nHost: a\r\nContent-Length: 20000000\r\n\r\n")
      20.times { client.write(part) }

      assert_equal Digest::SHA256.hexdigest(part * 20), client.response.body
      small = client.request("PUT", "/proxy/digest", body: "small").response

      assert_equal Digest::SHA256.hexdigest("small"), small.body
    end

    def test_an_upload_whose_client_goes_is_given_up_on_both_sides
      client = client(to: @server)
      client.write("PUT /proxy/digest HTTP/1.1\r\nHost: a\r\nContent-Length: 20000000\r\n\r\n")
      client.write("x" * 1_000_000)
      eventually("the other server has it") { @backend.get("/in-flight").body == "1" } # beside the one that asks
      client.reset

      eventually("the other server has been left too") { @backend.get("/in-flight").body == "0" }
      assert_equal "waited", @server.get("/get").body
    end

    def test_redis_waits_without_holding_up_others
      answers = burst(@server, (1..100).map { |number| "/redis?#{number}" })

      assert_equal (1..100).map(&:to_s), answers.map(&:body)
      assert_each_equal "pushed", burst(@server, (1..20).map { |number| "/blocking-redis?#{number}" }), @server, &:body
    end

    def test_tasks_of_a_request_whose_client_has_gone_can_be_ended
      client = client(to: @server)
      client.request("GET", "/cancelled")
      eventually("its tasks wait") { File.exist?(@server.path("waiting")) }
      client.reset

      eventually("it was cancelled, beside three tasks") { @server.get("/cleaned").body == "[3]" }
    end
  end
end
