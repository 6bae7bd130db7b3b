# frozen_string_literal: true

require "json"
require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # How much runs at once, who waits, who is refused, who is never run.
  class LimitsTest < Test
    include SpeaksHTTP

    # /hold holds its request until it is released, /hoard also every descriptor that is left; what has started is in the log.
    APP = <<~'RUBY'
      require "json"
      GATE = Thread::Queue.new
      TEXT = { "content-type" => "text/plain" }.freeze
      run(lambda do |env|
        warn "started #{env["REQUEST_URI"]}"
        case env["PATH_INFO"]
        when "/hold" then GATE.pop; [200, TEXT.dup, ["held"]]
        when "/hoard" then files = []; (begin; loop { files << File.open(IO::NULL) }; rescue Errno::EMFILE; end); warn "hoarded #{Process.pid}"; GATE.pop; files.each(&:close); [200, TEXT.dup, ["held"]]
        when "/process" then [200, TEXT.dup, [Process.pid.to_s]]
        when "/coming" then [200, TEXT.dup, [Fairlead.page.then { |page| page.slots.times.sum { |slot| page.get(slot, :incoming_requests) + page.get(slot, :incoming_connections) } }.to_s]]
        when "/compute" then stop = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 0.1; nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < stop; [200, TEXT.dup, ["computed"]]
        when "/events" then [200, { "content-type" => "text/event-stream" }, Enumerator.new { |out| out << "data: x\n\n"; GATE.pop; out << "data: y\n\n" }]
        when "/stream" then [200, TEXT.dup, ->(stream) { stream.write("x"); GATE.pop; stream.close }]
        when "/drip" then [200, TEXT.dup, Enumerator.new { |out| out << "x" until GATE.pop(timeout: 0.05) }]
        when "/upgrade" then [101, { "connection" => "upgrade", "upgrade" => "gate" }, ->(stream) { stream.write("x"); GATE.pop; stream.close }]
        else [200, TEXT.dup, ["quick"]]
        end
      end)
      # Released from without: a request could not, when none more may run.
      Thread.new { loop { File.exist?("release") && GATE.num_waiting > 0 && (File.delete("release"); GATE.push(true)); sleep 0.005 } }
    RUBY

    def holding(*flags, **options) = with_server(APP, "--no-preload", *flags, **options)

    def release(server)
      eventually("the last one released") { !File.exist?(server.path("release")) }
      server.write("release", "")
    end

    def started(server) = server.log.scan(/^started (\S+)/).flatten

    def eventually_started(server, *paths) = eventually("start of #{paths}") { started(server) == paths }

    def test_what_is_over_the_bound_waits_its_turn_first_come_first_served
      server = holding("--in-flight", "2")
      clients = Array.new(6) do |number|
        client(to: server).request("GET", "/hold?#{number}").tap { |client| assert client.silent?(0.02) }
      end
      eventually_started(server, "/hold?0", "/hold?1")
      6.times do |number|
        release(server)
        eventually_started(server, *(0..[number + 2, 5].min).map { |started| "/hold?#{started}" })
      end
      clients.each { |client| assert_equal "held", client.response.body }
    end

    def test_who_waits_too_long_is_told_so_at_once_and_the_connection_ends
      server = holding("--in-flight", "1", "--queue-timeout", "1")
      holder = client(to: server).request("GET", "/hold")
      eventually_started(server, "/hold")
      late = nil
      took = duration { @answer = (late = client(to: server).request("GET", "/late")).response }
      assert_includes 0.99..10, took
      assert_equal [503, "close"], [@answer.status, @answer["connection"]]
      assert_match(/\A\d+\z/, @answer["retry-after"])
      assert_predicate late, :eof?
      release(server)
      assert_equal "held", holder.response.body
      assert_equal "quick", client(to: server).get("/").body
      refute_includes started(server), "/late"
    end

    # The loop looks around also while one request after the other computes.
    def test_a_busy_worker_too_refuses_in_time
      server = holding("--queue-timeout", "0.35")
      clients = Array.new(300) { |number| client(to: server).request("GET", "/compute?#{number}") } # 30 s
      assert_operator duration { assert_includes clients.map { |client| client.response.status }, 503 }, :<, 20
    end

    def test_a_busy_worker_too_forgets_who_has_gone
      server = holding("--queue-target", "0")
      clients = Array.new(50) { |number| client(to: server).request("GET", "/compute?#{number}") } # 5 s
      clients[0].response
      clients.pop.reset
      assert_each_equal 200, clients.drop(1).map(&:response), server, &:status
      refute_includes started(server), "/compute?49"
    end

    def test_a_request_whose_client_has_gone_is_never_run
      server = holding("--in-flight", "1")
      holder = client(to: server).request("GET", "/hold")
      eventually_started(server, "/hold")
      reset, closed = client(to: server).request("GET", "/reset"), client(to: server).request("GET", "/closed")
      half = client(to: server).request("GET", "/half")
      old = client(to: server).request("GET", "/old", version: "1.0")
      [half, old].each(&:close_write) # they still read
      assert_equal 102, half.response(processing: true).status
      assert old.silent?(0.05)
      open = descriptors(server)
      reset.reset
      closed.close # at once after its request
      eventually("both are let go of") { descriptors(server) == open - 2 }
      release(server)
      assert_equal "held", holder.response.body
      assert_equal %w[quick quick], [half, old].map { |client| client.response.body }
      assert_equal %w[/hold /half /old], started(server)
    end

    # It cannot be asked whether it still reads.
    def test_an_old_client_that_ends_its_side_late_gets_its_answer
      server = holding("--in-flight", "1", "--cancel-abandoned")
      running = client(to: server).request("GET", "/hold", version: "1.0")
      eventually_started(server, "/hold")
      waiting = client(to: server).request("GET", "/late", version: "1.0")
      assert waiting.silent?(0.4)
      [running, waiting].each(&:close_write)
      assert waiting.silent?(0.1)
      release(server)
      assert_equal %w[held quick], [running, waiting].map { |client| client.response&.body }
    end

    # Its end comes with the request, and is known before there is anything to ask.
    def test_a_crowd_that_has_gone_costs_nothing
      server = holding("--in-flight", "1")
      holder = client(to: server).request("GET", "/hold")
      eventually_started(server, "/hold")
      open = descriptors(server)
      50.times { |number| client(to: server).request("GET", "/gone?#{number}").close }
      eventually("all are let go of") { descriptors(server) <= open }
      release(server)
      assert_equal "held", holder.response.body
      assert_equal "quick", client(to: server).get("/").body
      assert_equal %w[/hold /], started(server)
    end

    def test_long_lived_responses_do_not_count
      server = holding("--in-flight", "1")
      streams = %w[/events /stream /events].map do |path|
        client(to: server).request("GET", path).tap { |client| assert_includes client.some, "200 OK" }
      end
      assert_equal "quick", client(to: server).get("/").body
      3.times { release(server) }
      streams.each { |client| assert client.rest_of_chunks.end_with?("0\r\n\r\n") }
    end

    def test_an_upgraded_connection_does_not_count
      server = holding("--in-flight", "1")
      upgraded = client(to: server).request("GET", "/upgrade", "Connection: upgrade", "Upgrade: gate")
      assert_equal 101, upgraded.response.status
      assert_equal "quick", client(to: server).get("/").body
      release(server)
      assert_equal "x", upgraded.rest
    end

    def test_a_body_that_still_produces_after_five_seconds_does_not_count
      server = holding("--in-flight", "1")
      drip = client(to: server).request("GET", "/drip").tap { |client| assert_includes client.some, "200 OK" }
      took = duration { assert_equal "quick", client(to: server).get("/").body }
      assert_includes 4.5..15, took
      release(server)
      assert drip.rest_of_chunks.end_with?("0\r\n\r\n")
    end

    # A request waits for the place that a stream gives up, while nothing else happens.
    def test_a_place_that_becomes_free_is_taken_at_once
      server = holding("--in-flight", "1")
      stream = client(to: server).request("GET", "/stream")
      second = client(to: server).request("GET", "/")
      assert_operator duration { assert_equal "quick", second.response.body }, :<, 10
      release(server)
      stream.rest_of_chunks
    end

    def test_long_lived_responses_have_a_bound_of_their_own
      server = holding("--in-flight", "1", "--streams", "1", "--queue-timeout", "1")
      first = client(to: server).request("GET", "/events").tap { |client| assert_includes client.some, "data: x" }
      second = client(to: server).request("GET", "/events").tap { |client| assert_includes client.some, "data: x" }
      assert_equal 503, client(to: server).get("/").status # the second one counts as any other
      2.times { release(server) }
      [first, second].each(&:rest_of_chunks)
      assert_equal "quick", client(to: server).get("/").body
    end

    def test_without_descriptors_accepting_pauses_and_goes_on_again
      server = holding(spawn_options: { rlimit_nofile: [64, 64] })
      clients = Array.new(100) { client(to: server) }
      eventually("the descriptors are used up, but for some for the app") { descriptors(server) >= 56 }
      before = cpu(server)
      assert_equal "quick", clients.first.get("/").body
      sleep 0.5
      assert_operator cpu(server) - before, :<, 0.25, "it spins"
      clients.last << "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
      clients.first(90).each(&:close)
      assert_equal "quick", clients.last.response.body
    end

    def test_while_the_app_has_all_descriptors_new_connections_wait_and_nothing_spins
      server = holding(spawn_options: { rlimit_nofile: [128, 128] })
      hoarder = client(to: server).request("GET", "/hoard")
      eventually_hoarded(server)
      late = client(to: server).request("GET", "/late")
      before = cpu(server)
      assert late.silent?(1)
      assert_operator cpu(server) - before, :<, 0.25, "it spins"
      release(server)
      assert_equal %w[held quick quick], [hoarder.response.body, late.response.body, client(to: server).get("/").body]
    end

    def test_a_worker_whose_app_has_all_descriptors_leaves_new_connections_to_its_sibling
      server = holding("-w", "2", spawn_options: { rlimit_nofile: [200, 200] })
      hoarder = client(to: server).request("GET", "/hoard")
      full = eventually_hoarded(server)
      clients = Array.new(50) { client(to: server).request("GET", "/process") }
      assert_equal [server.worker_pids - [full]], clients.map { |client| [client.response.body.to_i] }.uniq
      eventually("nothing is on its way") { clients.first.get("/coming").body == "0" }
      release(server)
      assert_equal "held", hoarder.response.body
      eventually("it takes new ones again") { client(to: server).get("/process").body == full.to_s }
    end

    private

    # @return [Integer] the worker.
    def eventually_hoarded(server) = eventually("no descriptor is left") { server.log[/^hoarded (\d+)$/, 1]&.to_i }

    def descriptors(server) = Dir.children("/proc/#{server.worker_pids.first}/fd").size

    # Seconds of the worker.
    def cpu(server) = cpu_time(server.worker_pids.first)
  end
end
