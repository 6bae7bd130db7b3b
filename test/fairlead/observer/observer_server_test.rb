# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # The small HTTP server, in a thread of the test.
  #
  # Covers observer/observer_connection.rb
  class ObserverServerTest < Test
    def setup
      super
      @listener = Listener.open("http://127.0.0.1:0")
      @clients = []
    end

    def teardown
      @server&.kill&.join
      [@listener, *@clients].each(&:close)
      super
    end

    def test_it_answers_requests_on_one_connection
      serve({ "/metrics" => ->(request) { [200, { "content-type" => "text/plain" }, "#{request.query} #{request.headers["accept"]}\n"] } })
      client = connect
      client.write("GET /metrics?a=1 HTTP/1.1\r\nHost: x\r\nACCEPT:  text/plain \r\n\r\nHEAD /metrics HTTP/1.1\r\n\r\n")
      client.write("GET /other HTTP/1.0\r\n\r\n")
      answers = client.read

      assert_match(/\AHTTP\/1.1 200 OK\r\n.*connection: keep-alive\r\n.*\r\n\r\na=1 text\/plain\n/m, answers)
      assert_match(/\nHTTP\/1.1 200 OK\r\n[^\0]*?\r\n\r\nHTTP\/1.1 404 Not Found\r\n[^\0]*connection: close/, answers)
      assert_match(/no-store/, answers)
    end

    def test_what_it_does_not_understand_ends_the_connection
      serve({ "/" => ->(_) { [200, {}, ""] } })
      {
        "GET / HTTP/2.0\r\n\r\n" => 400, "GET http://a/ HTTP/1.1\r\n\r\n" => 400, "\r\n\r\n" => 400, "GET / HTTP/1.1\r\nA B: c\r\n\r\n" => 400,
        "GET / HTTP/1.1\r\n A: c\r\n\r\n" => 400, "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nab" => 405, "GET / HTTP/1.1\r\nA: #{"x" * 20_000}" => 431,
        "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" => 200
      }.each do |request, status|
        client = connect
        client.write(request)

        assert_match(/\AHTTP\/1.1 #{status} [^\0]*connection: close/, answer_of(client), request[0, 60])
      end
    end

    def test_it_refuses_those_without_the_token
      serve({ "/" => ->(_) { [200, {}, "figures"] } }, AccessToken.new("secret"))

      ["", "Authorization: Bearer wrong\r\n"].each do |field|
        refusal = exchange("GET / HTTP/1.0\r\n#{field}\r\n")
        assert_match(/\AHTTP\/1.1 401 Unauthorized\r\n[^\0]*www-authenticate: Bearer, Basic/, refusal)
        refute_includes refusal, "figures"
      end
      assert_match(/200 OK.*figures\z/m, exchange("GET / HTTP/1.0\r\nAuthorization: Bearer secret\r\n\r\n"))
    end

    # A website whose name leads to 127.0.0.1 all at once.
    def test_it_refuses_other_hosts
      serve({ "/" => ->(_) { [200, {}, "figures"] } }, hosts: ->(host) { host != "evil.example" })

      assert_match(/\AHTTP\/1.1 421 /, exchange("GET / HTTP/1.0\r\nHost: evil.example\r\n\r\n"))
      assert_match(/200 OK/, exchange("GET / HTTP/1.0\r\n\r\n"))
    end

    def test_a_failure_is_one_of_its_request
      serve({ "/" => ->(_) { raise "on purpose" } })
      Log.io = log = StringIO.new

      assert_match(/\AHTTP\/1.1 500 /, exchange("GET / HTTP/1.0\r\n\r\n"))
      assert_match(/could not answer \/: .*on purpose/, log.string)
    ensure
      Log.io = $stderr
    end

    # The ones that say nothing or read nothing lose their place to newcomers, the oldest first.
    def test_slow_clients_keep_nobody_away
      serve({ "/" => ->(_) { [200, {}, "x" * 10_000_000] }, "/metrics" => ->(_) { [200, {}, "figures"] } })
      20.times { connect.write("GET / HTTP/1.1\r\n\r\n") }
      40.times { connect.write("GET /metr") }

      5.times { assert_match(/200 OK.*figures\z/m, exchange("GET /metrics HTTP/1.0\r\n\r\n")) }
    end

    # Between two requests nobody waits for an answer, and newcomers are for another process.
    def test_at_its_end_it_answers_those_who_have_asked
      asked, over = Array.new(2) { Thread::Queue.new }
      server = serve({ "/" => ->(_) { asked.push(true) && [200, {}, over.pop] }, "/idle" => ->(_) { [200, {}, ""] } })
      idle, client = connect, connect
      idle.write("GET /idle HTTP/1.1\r\n\r\n")
      assert_match(/200 OK/, idle.readpartial(1000))
      client.write("GET / HTTP/1.0\r\n\r\n")
      asked.pop
      finished = Thread.new { server.finish(within: 60) }
      eventually("it waits") { finished.status == "sleep" }
      connect.write("GET / HTTP/1.0\r\n\r\n")
      over.push("figures")

      assert_match(/200 OK.*figures\z/m, answer_of(client))
      assert finished.join(30), "the idle one and the newcomer do not count"
      assert_empty asked
    end

    def test_a_connection_for_which_there_is_no_thread_takes_nobodys_place
      server = serve({ "/" => ->(_) { [200, {}, "figures"] } })
      server.define_singleton_method(:start_thread) { |_| raise ThreadError, "on purpose" }
      assert_equal "", answer_of(connect)
      server.singleton_class.remove_method(:start_thread)

      assert_empty server.instance_variable_get(:@connections)
      assert_match(/200 OK.*figures\z/m, exchange("GET / HTTP/1.0\r\n\r\n"))
    end

    private

    # @return [ObserverServer]
    def serve(routes, token = AccessToken.new(nil), **options)
      server = ObserverServer.new([@listener.io], routes, token, **options)
      @server = Thread.new { server.run }
      server
    end

    def connect = TCPSocket.new("127.0.0.1", @listener.port).tap { |socket| @clients << socket }

    # It may be reset, if the server has not read all that was sent.
    def answer_of(client)
      text = +""
      loop { text << client.readpartial(65_536) }
    rescue EOFError, Errno::ECONNRESET
      text
    end

    def exchange(request)
      client = connect
      client.write(request)
      answer_of(client)
    end
  end
end
