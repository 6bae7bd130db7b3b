# frozen_string_literal: true

require_relative "../../../helper"
require_relative "../../../stalls"

module Fairlead
  # What has been answered is kept until more can be sent with it: not for as long as the next request takes.
  class KeptAnswerTest < Test
    include SpeaksHTTP
    include Stalls

    %w[/held /cpu /free].each do |path|
      timing define_method("test_an_answer_does_not_wait_for_the_next_request_that_does_#{path.delete("/")}") {
        with_server(APP, "-w", "1") do |server|
          first, second = Array.new(2) { client(to: server).tap { |client| client.get("/") } }
          assert_median_below(0.1) { seconds_until_answered(server, first, second, path) }
        end
      }
    end

    private

    # Both come while the worker stands still: it has both at once.
    def seconds_until_answered(server, first, second, path)
      worker = server.worker_pids.first
      server.signal(:STOP, worker)
      first.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
      second.write("GET #{path}/~#{new_word}?0.2 HTTP/1.1\r\nHost: a\r\n\r\n")
      server.signal(:CONT, worker)
      duration { assert_equal 200, first.response.status }.tap { assert_equal 200, second.response.status }
    end
  end
end
