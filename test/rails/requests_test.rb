# frozen_string_literal: true

require_relative "rails_app"

module Fairlead
  # What concurrent requests of a Rails app do to each other: nothing.
  class RailsRequestsTest < RailsTest
    needs :database

    REQUESTS = 100
    # A hundred that a busy machine lets come over a second, and serves slowly, are a rush: nobody is turned away here.
    FLAGS = ["--workers", "1", "--queue-target", "0"].freeze
    private_constant :FLAGS

    def test_a_hundred_requests_at_once_query_sqlite
      assert_all_query(server)
    end

    def test_a_hundred_requests_at_once_query_postgresql
      assert_all_query(server_with_postgresql)
    end

    # 20 ms each on the 20 connections that are open then: 0.1 s, beside what Rails takes. One after the other it would
    # be 2 s.
    timing def test_their_queries_run_at_once
      server = server_with_postgresql
      assert_all_query(server)
      assert_median_below(1.5, runs: 3) do
        queried = duration { assert_all_query(server) }
        queried - duration { server.json_at_once(*["/about"] * REQUESTS) }
      end
    end

    def test_waiting_requests_keep_their_own_state_and_find_nothing_of_others
      2.times do
        answers = server.json_at_once(*(1..REQUESTS).map { |n| "/state?number=#{n}" })

        (1..REQUESTS).zip(answers) do |n, answer|
          assert_equal [nil, nil, nil, "en"], answer["found"]
          assert_equal [n, n, n, n.even? ? "en" : "de"], answer["kept"]
          assert_equal 1 + (n % 10), answer["id"]
        end
      end
    end

    def test_a_connection_that_an_action_keeps_is_given_back_at_its_end
      30.times { assert_equal "200", server.get("/keep").code }

      assert_equal 0, server.json("/stat")["busy"]
    end

    def test_a_transaction_that_an_action_forgets_is_rolled_back
      server = server_with_postgresql

      assert_equal "200", server.get("/begin_and_forget").code
      assert_equal 0, server.json("/stat")["busy"]
      assert_equal "0", PG.connect(postgresql) { |connection|
        connection.exec("SELECT count(*) FROM items WHERE name = 'never committed'").getvalue(0, 0)
      }
      assert_includes server.log, "open database transaction"
    end

    def test_an_event_stream_of_action_controller_live
      response = server.get("/live?number=7")

      assert_equal "text/event-stream", response["content-type"]
      assert_equal [0, 1, 2].map { |n| { "n" => n, "number" => 7, "item" => "item #{n + 1}" } }, events(response)
      assert_equal 0, server.json("/stat")["busy"]
    end

    # Served one after the other, the first would wait for the second for ever.
    def test_a_hundred_event_streams_at_once_each_know_their_own_request
      numbers = (1..REQUESTS).map do |n|
        Thread.new { number_of(server.get("/live?number=#{n}&together=#{REQUESTS}"), n) }
      end

      assert_equal (1..REQUESTS).to_a, numbers.map(&:value)
    end

    def test_an_event_stream_is_told_that_its_client_has_gone_and_ends
      server.connect do |socket|
        socket.write("GET /endless?number=7 HTTP/1.1\r\nHost: a\r\n\r\n")
        socket.gets("again")
      end

      eventually("it is told") { File.exist?(server.path("disconnected")) && File.read(server.path("disconnected")) == "7" }
      # As the worker's last turn left it: the request that asks has come after it.
      eventually("its request has ended") { server.json("/in_flight").zero? }
    end

    def test_a_body_that_is_an_enumerator
      assert_equal "line 0\nline 1\nline 2\n", server.get("/enumerator").body
    end

    def test_a_file_is_sent
      assert_equal File.read(server.path("config.ru")), server.get("/file").body
    end

    def test_an_upload
      file = "x" * 1_000_000
      body = "--edge\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\n#{file}\r\n--edge--\r\n"
      response = server.post("/upload", body, "content-type" => "multipart/form-data; boundary=edge")

      assert_equal({ "name" => "a.txt", "size" => 1_000_000 }, JSON.parse(response.body))
    end

    private

    # With SQLite.
    def server = shared_rails(:fairlead, *FLAGS)

    def server_with_postgresql = shared_rails(:fairlead, *FLAGS, name: :postgresql, database: postgresql)

    def assert_all_query(server)
      answers = server.json_at_once(*(1..REQUESTS).map { |n| "/query?number=#{n}" })

      assert_equal (1..REQUESTS).map { |n| "item #{1 + (n % 10)}" }, answers.map { |answer| answer["name"] }
      eventually("all connections are given back") { server.json("/stat")["busy"].zero? }
    end

    # @return [Integer] the number that all events of the stream tell.
    def number_of(response, asked)
      numbers = events(response).map { |event| event["number"] }
      return numbers.first if response.code == "200" && numbers.size == 3 && numbers.uniq.one?

      flunk "GET /live?number=#{asked}: #{response.code} #{response.each_header.to_h}\n#{response.body[0, 4000]}\n#{complaints(server)}"
    end

    # @return [String] what the server's log says beside what it says of each request.
    def complaints(server)
      server.log.lines.grep_v(/\A(Started|Processing|Completed|  Parameters)|Item Load/).last(80).join
    end

    def events(response)
      response.body.scan(/^data: (.+)$/).map { |(data)| JSON.parse(data) }
    end
  end
end
