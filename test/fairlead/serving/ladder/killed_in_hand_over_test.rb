# frozen_string_literal: true

require_relative "../../../helper"
require_relative "../../../stalls"

module Fairlead
  # A request is on its way from a worker that is stuck to its sibling, and one of those who have to do with it is killed:
  # it is answered all the same, and once.
  class KilledInHandOverTest < Test
    include SpeaksHTTP
    include Stalls

    def test_the_receiver_is_killed
      on_its_way do |server, _, receiver, request, stuck|
        server.signal(:KILL, receiver)

        refute_equal receiver, answered(server, request), "the supervisor has given it to another"
        release(server)
        assert_equal 200, stuck.response.status
        eventually("a new worker") { regular_workers(server).size == 2 }
        eventually("nothing is still coming") { figures(server)[:incoming_requests].zero? }
      end
    end

    def test_the_sender_is_killed
      on_its_way do |server, sender, receiver, request, stuck|
        server.signal(:KILL, sender)
        server.signal(:CONT, receiver)

        refute_equal sender, answered(server, request)
        assert_predicate stuck, :eof?, "what the sender ran is lost"
      end
    end

    def test_the_supervisor_is_killed
      on_its_way do |server, sender, receiver, request, stuck|
        server.signal(:KILL)
        server.wait_for_end
        server.signal(:CONT, receiver)

        assert_equal receiver, answered(server, request)
        release(server)
        assert_equal 200, stuck.response.status
        eventually("the workers end") { [sender, receiver].none? { |pid| server.alive?(pid) } }
      end
    end

    # A request that has begun is answered; one that has not is answered, or its connection closed: then nobody runs it.
    def test_the_supervisor_is_killed_while_much_is_going_on
      with_server(APP, "-w", "2") do |server|
        outcomes = Thread::Queue.new
        clients = Array.new(10) { |index| Thread.new { ask_until_it_ends(server, index * 10_000, Random.new(index), outcomes) } }
        eventually("much is going on") { outcomes.size > 200 }
        server.signal(:KILL)
        clients.each(&:join)

        outcomes = Array.new(outcomes.size) { outcomes.pop }.to_h
        assert_empty outcomes.values - [200, :lost]
        lost = outcomes.select { |_, outcome| outcome == :lost }.keys
        runs = runs(server)
        assert_empty runs.keys & lost, "begun, and lost"
        assert_equal outcomes.keys - lost, outcomes.keys & runs.keys, "each answer is of a run"
        assert_empty runs.values.reject { |pids| pids.size == 1 }, "run twice"
      end
    end

    # Whoever sends it has looked before that one ended.
    def test_what_is_sent_to_a_worker_that_has_ended_is_answered_by_another
      app = <<~'RUBY'
        run lambda { |env|
          next [200, {}, [Process.pid.to_s]] unless env["PATH_INFO"] == "/too-late"

          channels = ObjectSpace.each_object(Fairlead::Server).first.instance_variable_get(:@channels)
          ours, theirs = UNIXSocket.pair
          ours.write("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
          channels.last.last.sendmsg([0, 0, 0].pack("Qllx32"), 0, nil, Socket::AncillaryData.unix_rights(theirs))
          theirs.close
          [200, {}, [ours.wait_readable(10) ? ours.read : "nobody has answered"]]
        }
      RUBY
      with_server(app, "-w", "2") do |server|
        assert_includes server.worker_pids, server.get("/too-late").body[/\d+\z/].to_i, server.log
      end
    end

    def test_the_supervisor_rests_while_nobody_takes_what_was_sent_to_a_worker_that_has_ended
      app = <<~'RUBY'
        run lambda { |env|
          File.write("filler", "#{Process.pid}\n")
          sleep 0.01 until File.exist?("fill")
          ObjectSpace.each_object(Fairlead::Server).first.instance_variable_get(:@channels).each do |_, sending|
            nil until sending.sendmsg_nonblock([0, -1, 0].pack("Qllx32"), 0, exception: false) == :wait_writable
          end
          Process.kill(:STOP, Process.pid)
          [200, {}, ["filled"]]
        }
      RUBY
      with_server(app, "-w", "2") do |server|
        one = client(to: server).request("GET", "/")
        filler = eventually("it has begun") { File.exist?(server.path("filler")) && File.read(server.path("filler"))[/.+\n/]&.to_i }
        suspend_at_rest(server, (server.worker_pids - [filler]).first)
        server.write("fill", "")
        eventually("it has stopped itself") { File.read("/proc/#{filler}/stat").split[2] == "T" }
        assert_operator cpu_in(1, server.supervisor_pid), :<, 0.1
        server.worker_pids.each { |pid| server.signal(:CONT, pid) }
        assert_equal "filled", one.response.body
        # It passes on some thousand messages first.
        eventually("the supervisor rests") { cpu_in(1, server.supervisor_pid) < 0.1 }
      ensure
        server.worker_pids.each { |pid| server.signal(:CONT, pid) }
      end
    end

    private

    # @return [Float] seconds of the processors that a process has in so many seconds.
    def cpu_in(seconds, pid)
      before = cpu_time(pid)
      sleep seconds
      cpu_time(pid) - before
    end

    # @yield the server; the sender, which is stuck; the receiver, which is stopped, so that what is sent to it waits in its
    #   socket; the client whose request is there; the client of what keeps the sender stuck.
    def on_its_way
      with_server(APP, "-w", "2") do |server|
        clients = client_of_each(server)
        stuck = keep_stuck(server)
        sender = stuck_worker(server)
        receiver, = clients.keys - [sender]
        request = clients[sender]
        suspend_at_rest(server, receiver)
        before = figures_of(server, sender)[:handed] # as it showed when it took that one up
        request.request("GET", "/", "X-Number: 1")
        eventually("it has been handed over") { figures_of(server, sender)[:handed] > before }
        yield server, sender, receiver, request, stuck
        assert_equal 1, runs(server).fetch(1).size
      ensure
        server.signal(:CONT, receiver) if receiver && server.alive?(receiver)
      end
    end

    # @return [Integer] by which process.
    def answered(server, client)
      client.response.body.to_i.tap { |pid| assert_equal [pid], runs(server).fetch(1) }
    end

    # One request after the other on one connection, until no more is answered.
    def ask_until_it_ends(server, first, dice, outcomes)
      connection = HTTPClient.new(server.connect)
      (first + 1..).each do |number|
        connection.request("GET", %w[/ /sleep?0.02 /free?0.03 /held?0.03 /cpu?0.02].sample(random: dice), "X-Number: #{number}")
        answer = connection.response or raise EOFError
        outcomes << [number, answer.status]
        break if answer["connection"] == "close"
      rescue EOFError, SystemCallError
        outcomes << [number, :lost]
        break
      end
    ensure
      connection&.close
    end
  end
end
