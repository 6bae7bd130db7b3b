# frozen_string_literal: true

require_relative "helper"
require_relative "crosstalk"

module Fairlead
  # The short form of `rake crosstalk`; and that its clients see what is wrong.
  class CrosstalkTest < Test
    needs :machine

    SECONDS = 10
    # The protocol that clients negotiate over TLS; nil: HTTP/1 in the clear.
    OVER = { "in_the_clear" => nil, "over_tls" => "http/1.1", "over_http2" => "h2" }.freeze

    OVER.each do |name, over|
      define_method(:"test_every_byte_of_every_response_#{name}_is_of_its_own_request") do
        run = Crosstalk.new(seconds: SECONDS, over:, least: 1_000).run

        assert_empty run.faults, run.to_s
        assert_operator run.answered, :>, 1_000, run.to_s
        assert_operator run.handed, :>, 0, run.to_s
      end
    end

    # All threads that run beside it would wait for the collector, and nobody be answered.
    def test_the_collector_soon_rests_whatever_becomes_of_the_request_that_has_it_run
      app = <<~RUBY
        #{Crosstalk::APP}
        WAYS["/begin"] = ->(*) { GC.stress = true; [] }
        WAYS["/goes-on"] = ->(*) { [GC.stress.to_s] }
      RUBY
      server = with_server(app, env: { "CWORK" => Crosstalk::CWORK }, lint: false)

      assert_equal "200", server.get("/begin?T0123456789&1").code
      eventually("the collector rests", within: 20) { server.get("/goes-on?T0123456789&1").body == "false" }
    end

    def test_a_client_that_gets_no_answer_asks_the_server_why
      listener = TCPServer.new("127.0.0.1", 0)
      client = Crosstalk::Client.new(listener.local_address.ip_port, 1, patience: 0.1) { "No problems." }
      client.run(monotonic + 0.05)

      assert_match(%r{\Anothing came from the server within 0.1 s: /[\w-]+\?T\h{10}&\d+}, client.faults.first)
      assert_equal "No problems.", client.faults.last
    ensure
      listener&.close
    end

    # What a server of any other kind would answer, by what is wrong with it.
    WRONG = {
      "another's body" => ->(token, _) { answer(token, "T0123456789" * 200) },
      "bytes of another" => ->(token, count) { answer(token, (token * count).tap { |body| body[-1] = "x" }) },
      "another's header" => ->(token, count) { answer("T0123456789", token * count) },
      "a byte too few" => ->(token, count) { answer(token, (token * count)[0..-2]) },
      "a byte too many" => ->(token, count) { "#{answer(token, token * count)}x" },
      "no chunk" => ->(token, _) { "HTTP/1.1 200 OK\r\nx-token: #{token}\r\ntransfer-encoding: chunked\r\n\r\n#{token}\r\n0\r\n\r\n" },
      "another's chunk" => ->(token, _) { "HTTP/1.1 200 OK\r\nx-token: #{token}\r\ntransfer-encoding: chunked\r\n\r\nb\r\nT0123456789\r\n0\r\n\r\n" }
    }.freeze

    def self.answer(token, body) = "HTTP/1.1 200 OK\r\nx-token: #{token}\r\ncontent-length: #{body.bytesize}\r\n\r\n#{body}"

    WRONG.each do |what, answer|
      define_method(:"test_a_client_sees_#{what.tr(" ", "_").delete("'")}") { refute_empty faults(&answer) }
    end

    def test_what_is_right_is_no_fault
      assert_empty(faults { |token, count| self.class.answer(token, token * count) })
    end

    private

    # Of a client of a server that answers so.
    def faults(&answer)
      listener = TCPServer.new("127.0.0.1", 0)
      serving = Thread.new { loop { serve(listener.accept, &answer) } }
      only_whole = Class.new(Crosstalk::Client) { define_method(:new_request) { super().tap { |request| request.path = "/fixed" } } }
      client = only_whole.new(listener.local_address.ip_port, 1)
      eventually("enough responses, or a fault") { client.run(monotonic + 0.05) && (client.faults.any? || client.outcomes["200"] > 100) }
      client.faults
    ensure
      serving.kill.join
      listener.close
    end

    def serve(socket)
      while (line = socket.gets)
        token, count = line[/\?(T\h+)&(\d+)/] && [$1, $2.to_i]
        socket.write(yield(token, count)) if token
      end
    rescue SystemCallError
      nil
    ensure
      socket.close
    end
  end
end
