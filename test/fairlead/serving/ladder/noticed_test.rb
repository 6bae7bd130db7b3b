# frozen_string_literal: true

require_relative "../../../helper"
require_relative "../../../stalls"

module Fairlead
  # How soon the shared page says that a reactor has not come back, and which of the three it is.
  class NoticedTest < Test
    include SpeaksHTTP
    include Stalls

    # As the shared page has them.
    KINDS = { "/free" => 1, "/held" => 2, "/cpu" => 3 }.freeze
    # One worker notes when it begins, another one what it sees of that in the page, until the first has come back.
    WATCHED = APP.sub("case path", <<~'RUBY'.chomp)
      now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }
      if (watched = env["HTTP_X_WATCHED"])
        slot = Fairlead.page.slots.times.find { |number| Fairlead.page.read(number)[:pid] == watched.to_i }
        File.write("watching", "")
        next [200, {}, ["[]"]] if watched.to_i == Process.pid # this connection has moved
        seen = []
        ends = now.call + 0.3
        while now.call < ends
          stall = Fairlead.page.read(slot)[:stall]
          seen << [stall, now.call] if seen.empty? || seen.last.first != stall
          sleep(0.0003)
        end
        next [200, {}, [JSON.generate(seen)]]
      end
      File.write("began", now.call.to_s) if env["HTTP_X_NOTES"]
      case path
    RUBY

    KINDS.each do |path, kind|
      timing define_method("test_one_that_does_#{path.delete("/")}_is_known_for_that_within_twenty_milliseconds") {
        server = shared_server(WATCHED, "-w", "2")
        assert_median_below(0.02, runs: 7) do
          seen, began = watch_a_stall(server, *client_of_each(server), path)
          found = seen.find { |known, at| known == kind && at > began }
          found ? found.last - began : 1
        end
      }
    end

    private

    # @return [Array(Array, Float)] the kinds that were seen one after the other, each with when; when the stall began.
    def watch_a_stall(server, (pid, victim), (_, other), path)
      FileUtils.rm_f(server.path("watching"))
      other.request("GET", "/", "X-Watched: #{pid}")
      eventually("it is watched") { File.exist?(server.path("watching")) }
      victim.request("GET", "#{path}/~#{new_word}?0.1", "X-Notes: 1")
      answers = [victim, other].map(&:response)
      assert_equal [200, 200], answers.map(&:status)
      # A busy worker may have given the connection to its sibling.
      [answers[0].body == pid.to_s ? JSON.parse(answers[1].body) : [], File.read(server.path("began")).to_f]
    end
  end
end
