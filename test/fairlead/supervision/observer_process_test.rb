# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../scraping"
require_relative "../../stalls"

module Fairlead
  # The process that serves the metrics: when it is there, and for how long.
  class ObserverProcessTest < Test
    include Scraping

    APP = "run ->(env) { [200, {}, [Process.pid.to_s]] }"
    METRICS = ["--metrics", "http://127.0.0.1:0"].freeze
    private_constant :APP, :METRICS

    def test_it_has_nothing_open_that_belongs_to_others
      with_server(APP, "-w", "2", *METRICS) do |server|
        own = sockets_of(observer(server))
        workers = server.worker_pids - [observer(server)]
        listener = listener_of(server)

        assert_equal 2, workers.size
        workers.each { |pid| refute_includes sockets_of(pid), listener, server.title(pid) }
        assert_includes own, listener
        # All have what the init process had.
        [server.supervisor_pid, *workers].each { |pid| assert_empty (own & sockets_of(pid)) - sockets_of(server.pid), server.title(pid) }
      end
    end

    # Both of them hold Ruby's lock. What is shown is so long that it will count.
    def test_it_answers_while_every_worker_is_stuck
      with_server(Stalls::APP, "-w", "2", "--no-preload", "--stall-report", "0.3", *METRICS) do |server|
        clients = stick_both_workers(server)
        answers = eventually("it tells that both are stuck") do
          seen = figures(server)
          seen if seen["fairlead_stalled_workers{kind=\"stuck\"}"] == 2
        end

        assert_equal 2, answers.select { |name, _| name.start_with?("fairlead_worker_in_flight_requests") }.values.sum
        release(server)
        assert_equal [200, 200], clients.map { |client| client.read[%r{\AHTTP/1.1 (\d+)}, 1].to_i }
        eventually("both stalls count") { figures(server)["fairlead_stalls_total{kind=\"stuck\"}"] == 2 }
      ensure
        clients&.each(&:close)
      end
    end

    timing def test_a_scrape_takes_milliseconds_while_every_worker_is_stuck
      with_server(Stalls::APP, "-w", "2", "--no-preload", *METRICS) do |server|
        scrape(server)
        clients = stick_both_workers(server)
        assert_median_below(0.02, "a scrape", runs: 100) { duration { scrape(server) } }
        release(server)
      ensure
        clients&.each(&:close)
      end
    end

    def test_a_killed_one_comes_back
      with_server(APP, *METRICS) do |server|
        server.get
        first = observer(server)
        Process.kill(:KILL, first)
        eventually("another one is there") { observer(server) != first }

        assert_operator figures(server)["fairlead_requests_total"], :>=, 1
        assert_match(/The observer \(process #{first}\) was ended by SIGKILL. It is started again in 1 s/, server.log)
      end
    end

    def test_it_ends_with_the_server
      [["-w", "1"], ["-w", "0"]].each do |flags|
        with_server(APP, *flags, *METRICS) do |server|
          pid = observer(server)
          %i[TERM INT HUP].each { |signal| Process.kill(signal, pid) } # as a terminal or a service manager does
          assert_equal "200", scrape(server).code
          assert_predicate server.stop, :success?
          refute server.alive?(pid)
        end
        with_server(APP, *flags, *METRICS) do |server|
          pid = observer(server)
          server.signal(:KILL, server.supervisor_pid)
          eventually("it has ended") { !server.alive?(pid) }
        end
      end
    end

    # With `workers 0`, the app's process has the sockets of the metrics and the channels to the side processes.
    def test_children_of_the_app_keep_no_address_and_no_process_beside_it
      app = "children = [fork { sleep }]\nrun ->(_) { [200, {}, [(children << fork { sleep }).join(\" \")]] }"
      %i[TERM KILL].each do |signal|
        with_server(app, "-w", "0", *METRICS) do |server|
          children = server.get.body.split.map { |pid| Integer(pid) }
          addresses = [server.port, metrics_of(server).port]
          pid = observer(server)
          notifications = (sockets_of(server.pid) & sockets_of(pid)) - [listener_of(server)]
          children.each { |child| assert_empty sockets_of(child) - notifications }
          server.signal(signal)
          server.wait_for_end
          eventually("the addresses are free") { addresses.all? { |port| free?(port) } }

          assert(children.all? { |child| server.alive?(child) })
          refute server.alive?(pid)
        ensure
          children&.each { |child| Process.kill(:KILL, child) }
        end
      end
    end

    # The last requests count, too.
    def test_it_answers_until_the_last_request_has_ended
      app = "run ->(env) { File.write(\"begun\", \"\"); sleep 0.01 until File.exist?(\"go\"); [200, {}, []] }"
      with_server(app, *METRICS) do |server|
        client = server.connect
        client.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        eventually("it runs") { File.exist?(server.path("begun")) }
        server.signal(:TERM)
        eventually("it drains") { figures(server)["fairlead_workers{kind=\"regular\",state=\"draining\"}"] == 1 }
        server.write("go", "")

        assert_match(/\AHTTP\/1.1 200/, client.gets)
        assert_predicate server.wait_for_end, :success?
      ensure
        client&.close
      end
    end

    def test_without_workers_it_is_there_as_well
      with_server(APP, "-w", "0", *METRICS) do |server|
        3.times { server.get }
        eventually("they count") { figures(server)["fairlead_requests_total"] == 3 }
        eventually("the process is known") { figures(server)["fairlead_process_resident_memory_bytes{process=\"worker 0\"}"].to_f.positive? }

        Process.kill(:KILL, observer(server))
        eventually("it is told") { server.log.match?(/The observer \(process.*While this process serves, it cannot be started again/m) }
        assert_equal "200", server.get.code
        answer = ServerSelection.new(ControlSocket.servers, pid: server.pid).server
        assert_match(/\AThe observer \(process.*restart the server\.\z/, StatusReport.new(answer).to_h[:matters].first)
      end
    end

    # Both generations have the socket: no scrape is refused. Figures of the old one end, those of the new one begin.
    def test_new_code_takes_over_the_address
      with_server(APP, *METRICS) do |server|
        uri = metrics_of(server)
        5.times { server.get }
        first = observer(server)
        scraper = Thread.new { loop { Net::HTTP.get_response(uri).value } }
        server.restart(:USR2)
        eventually("the first one has ended") { !server.alive?(first) }
        scraper.kill.join

        assert_equal 0, parse(Net::HTTP.get(uri))["fairlead_requests_total"]
        assert_equal "200", server.get.code
      end
    end

    def test_a_foreground_process_keeps_its_address_when_new_code_comes
      with_server(APP, "-w", "0", *METRICS) do |server|
        uri = metrics_of(server)
        server.restart(:USR2)

        eventually("it serves") { parse(Net::HTTP.get(uri))["fairlead_workers{kind=\"regular\",state=\"serving\"}"] == 1 }
      end
    end

    def test_an_address_that_is_taken_ends_the_start
      taken = TCPServer.new("127.0.0.1", 0)
      [["-w", "1"], ["-w", "0"]].each do |flags|
        with_server(APP, *flags, "--metrics", "http://127.0.0.1:#{taken.addr[1]}", ready: false) do |server|
          refute_predicate server.wait_for_end, :success?
          assert_match(%r{--metrics: http://127.0.0.1:\d+ is taken: another server listens there.* or choose another port with --metrics},
                       server.log.tr("\n", " "))
        end
      end
      with_server(APP, "--metrics", "http://0.0.0.0:0", ready: false) do |server|
        refute_predicate server.wait_for_end, :success?
        assert_match(%r{--metrics: whoever reaches http://0.0.0.0:0 could read the metrics. Set `metrics_token`}, server.log)
      end
    ensure
      taken&.close
    end

    def test_it_may_listen_on_a_unix_socket
      with_server(APP, "--metrics", "unix:metrics.sock") do |server|
        client = UNIXSocket.new(server.path("metrics.sock"))
        client.write("GET /metrics HTTP/1.1\r\nHost: any\r\nConnection: close\r\n\r\n")

        assert_match(/200 OK.*fairlead_build_info/m, client.read)
        assert_predicate server.stop, :success?
        refute_path_exists server.path("metrics.sock")
      ensure
        client&.close
      end
    end

    private

    # It takes its title a moment after the server is ready.
    def observer(server)
      eventually("the observer") { server.descendant_pids.find { |pid| server.title(pid).start_with?("fairlead: observer") } }
    end

    # @return [Array<TCPSocket>] of the two requests, each of which holds Ruby's lock until {#release}.
    def stick_both_workers(server)
      %w[one other].map do |name|
        client = server.connect
        client.write("GET /kept/~#{name}?kept-#{name} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        eventually("#{name} holds the lock") { File.exist?(server.path("kept-#{name}")) }
        client
      end
    end

    def release(server) = %w[one other].each { |name| File.delete(server.path("kept-#{name}")) }

    # A process that ends closes its sockets with its last thread.
    def free?(port)
      TCPServer.new("127.0.0.1", port).close
      true
    rescue Errno::EADDRINUSE
      false
    end

    def sockets_of(pid) = opened(pid).grep(/\Asocket:/)

    # @return [String] what /proc calls the socket of the metrics.
    def listener_of(server)
      port = format("%04X", metrics_of(server).port)
      inode = File.readlines("/proc/net/tcp").map(&:split).find { |row| row[1].end_with?(":#{port}") && row[3] == "0A" }[9]
      "socket:[#{inode}]"
    end
  end
end
