# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # Waiting for child processes, as code does that bounds the time of a program: interrupted, and waited for again.
  class ChildProcessesTest < Test
    APP = <<~'RUBY'
      require "timeout"
      require "open3"

      def interrupted(seconds)
        Timeout.timeout(seconds) { yield }
        raise "it was not interrupted"
      rescue Timeout::Error
        nil
      end

      # A child that ends, with 3, once the pipe is closed.
      def kept
        reader, writer = IO.pipe
        pid = spawn("read line; exit 3", in: reader)
        reader.close
        [pid, writer]
      end

      KINDS = {
        "/again" => -> { pid, held = kept; interrupted(0.3) { Process.wait(pid) }; held.close; Process.wait2(pid)[1].exitstatus },
        "/thrice" => -> { pid, held = kept; 3.times { interrupted(0.2) { Process.wait(pid) } }; held.close; Process.wait2(pid)[1].exitstatus },
        "/term" => lambda {
          ready, told = IO.pipe
          pid = spawn("trap 'sleep 0.3; exit 3' TERM; echo; while :; do sleep 0.05; done", out: told)
          told.close
          ready.gets
          interrupted(0.3) { Process.wait(pid) }
          Process.kill(:TERM, pid)
          Process.wait2(pid)[1].exitstatus
        },
        "/another" => lambda {
          first, held = kept
          interrupted(0.3) { Process.wait(first) }
          second = spawn("sleep 0.2; exit 4")
          statuses = [second, first].map { |pid| Process.wait2(pid)[1].exitstatus.tap { held.close } }
          statuses == [4, 3] ? 3 : statuses
        },
        "/status" => -> { pid = spawn("exit 3"); sleep 0.1; Process.wait2(pid)[1].exitstatus },
        "/flags" => lambda {
          pid = spawn("kill -STOP $$; exit 3")
          stopped = Process.wait2(pid, Process::WUNTRACED)[1].stopped?
          Process.kill(:CONT, pid)
          stopped && Process.wait2(pid)[1].exitstatus
        },
        "/open3" => lambda {
          Open3.popen3("read line; exit 3") { |input, *, thread| interrupted(0.3) { thread.value }; input.close; thread.value.exitstatus }
        },
        "/backquotes" => -> { `sleep 0.1; exit 3`; $?.exitstatus },
        "/nobody" => -> { pid = spawn("exit 0"); Process.wait(pid); begin; Process.wait(pid); rescue Errno::ECHILD; 3; end },
        # Of any child: alone in its worker.
        "/any" => lambda {
          pid, held = kept
          interrupted(0.3) { Process.wait }
          held.close
          found, status = Process.wait2
          found == pid && status.exitstatus
        },
        "/all" => -> { 3.times { spawn("sleep 0.1; exit 1") }; Process.waitall.sum { |_, status| status.exitstatus } },
        "/none" => -> { begin; Process.wait; rescue Errno::ECHILD; 3; end }
      }

      def statuses = [$?&.exitstatus, Process.last_status&.exitstatus]

      # Have a child that ends with a number.
      WAYS = {
        "system" => ->(number) { system("exit #{number}") }, "backquotes" => ->(number) { `exit #{number}` },
        "popen" => ->(number) { IO.popen("exit #{number}", &:read) }, "wait" => ->(number) { Process.wait(spawn("exit #{number}")) },
        "enumerator" => ->(number) { Enumerator.new { |all| all << system("exit #{number}") << sleep(0.001) }.take(2) }
      }
      HAD = Hash.new(0)

      # Once all have had their child, and the next ones have come: what each sees, and one of its tasks.
      def own(way, number, all)
        before = statuses
        WAYS.fetch(way).call(number)
        HAD[way] += 1
        sleep 0.001 until HAD[way] == all
        seen = [before, statuses, Enumerator.new { |found| found << statuses }.next, Async { system("exit 77"); statuses }.wait, statuses]
        [*seen.flatten, Thread.new { $? }.value].inspect
      end
      run(lambda do |env|
        _, own, way, number, all = env["PATH_INFO"].split("/")
        [200, {}, [own == "own" ? own(way, number.to_i, all.to_i) : KINDS.fetch(env["PATH_INFO"]).call.to_s]]
      end)
    RUBY

    def server = shared_server(APP)

    %w[again thrice term another status flags open3 backquotes nobody].each do |kind|
      define_method("test_#{kind}_by_twenty_four_at_once") do
        answers = nil
        took = duration do
          answers = Array.new(24) { Thread.new { server.get("/#{kind}").body } }.map { |thread| thread.join(60)&.value }
        end
        assert_each_equal "3", answers, server
        assert_operator took, :<, 50
      end
    end

    %w[system backquotes popen wait enumerator].each do |way|
      define_method("test_the_status_of_the_last_child_is_the_requests_own_after_#{way}") do
        clients = Array.new(24) { |number| Thread.new { server.get("/own/#{way}/#{number}/24").body } }
        expected = Array.new(24) { |number| [nil, nil, *[number] * 4, 77, 77, number, number, nil].inspect }

        assert_equal expected, clients.map { |thread| thread.join(60)&.value }
      end
    end

    %w[any all none].each do |kind|
      define_method("test_#{kind}") { assert_equal "3", server.get("/#{kind}").body }
    end
  end
end
