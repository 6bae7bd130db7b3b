# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # Whoever writes to a client that takes whatever it is sent never has to wait: others have their turns none the less.
  # Covers serving/turns.rb
  class GivingWayTest < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      PART = "x" * 8192
      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # Slower than any client: it never waits for one.
      def part
        ends = now + 0.0001
        nil while now < ends
        PART
      end

      # Until another task of the same reactor has had its turns, which are told last.
      def produce
        turns = 0
        other = Async { loop { sleep(0.001) && turns += 1 } }
        ends = now + 15
        yield part while turns < 100 && now < ends
        other.stop
        yield " #{turns}"
      end

      Parts = Struct.new(:source) { def each(&) = source.call(&) }

      BODIES = {
        "/parts" => -> { Parts.new(method(:produce)) },
        "/stream" => -> { ->(stream) { produce { |part| stream << part }; stream.close } },
        "/enumerator" => -> { Enumerator.new { |parts| produce { |part| parts << part } } },
        "/large" => -> { ["x" * (100 << 20)] }
      }
      # What is read is slower than any client, too.
      def turns_while_reading(input)
        turns = 0
        other = Async { loop { sleep(0.001) && turns += 1 } }
        part while input.read(16_384)
        other.stop
        turns
      end

      run lambda { |env|
        next [200, {}, [turns_while_reading(env["rack.input"]).to_s]] if env["PATH_INFO"] == "/upload"

        [200, {}, BODIES.fetch(env["PATH_INFO"]).call]
      }
    RUBY

    %w[/parts /stream /enumerator].each do |path|
      define_method(:"test_others_have_their_turns_beside_#{path.delete("/")}") do
        body = client(to: server).get(path).body

        assert_operator body.bytesize, :>, 100_000
        assert_operator Integer(body[/ (\d+)\z/, 1], 10), :>=, 100, "turns in 15 s"
        refute_includes server.log, "GET #{path} stalled for"
      end
    end

    # Some 0.6 s.
    def test_others_have_their_turns_beside_an_upload
      with_server(APP, "--environment", "production", "--stream-request-bodies", lint: false) do |server|
        turns = client(to: server).request("POST", "/upload", body: "x" * 100_000_000).response.body

        assert_operator Integer(turns, 10), :>, 10, "turns in a second"
      end
    end

    def test_a_string_of_any_size_is_sent_whole
      assert_equal 100 << 20, client(to: server).get("/large").body.bytesize
    end

    private

    def server = shared_server(APP, "--environment", "production", lint: false)
  end
end
