# frozen_string_literal: true

require "digest"
require "json"
require_relative "held_connections"
require_relative "http_client"

module Fairlead
  # For tests of the ladder: an app that stalls in every way in which an app can, and how long others wait meanwhile. Of a
  # request with a number it notes that it has begun, and its answer repeats the number.
  module Stalls
    # An answer that is not the one to the request.
    Wrong = Class.new(StandardError)

    APP = <<~RUBY
      $LOAD_PATH.unshift #{File.expand_path("../examples/cwork/lib", __dir__).inspect}
      require "cwork"
      require "digest"
      require "json"
      FIGURES = %i[pid state stall standbys handed received requests queued incoming_requests lane_requests lane_waiting lane_running
                   lane_max lane_waited_us]
      BEGUN = []

      def compute(seconds, clock = Process::CLOCK_MONOTONIC)
        limit = Process.clock_gettime(clock) + seconds
        nil while Process.clock_gettime(clock) < limit
      end

      run lambda { |env|
        began = Thread.current.native_thread_id
        seconds, note = env["QUERY_STRING"].split("&")
        seconds = seconds.to_f
        path = env["PATH_INFO"].sub(%r{/~.*}, "")
        if (number = env["HTTP_X_NUMBER"])
          BEGUN << number.to_i
          File.write("ran", "\#{number} \#{Process.pid}\\n", mode: "a")
        end
        sleep(0.01) if path.sub!(%r{^/later(?=/)}, "")
        File.write("begun-\#{note}", "") if note # after the sleep, in which others would be served without any help
        case path
        when "/free" then Cwork.without_gvl(seconds)
        when "/gate" then (Cwork.without_gvl(0.02) while File.exist?("gate"))
        when "/free/gate" then (Cwork.without_gvl(seconds); Cwork.without_gvl(0.02) while File.exist?("gate"))
        when "/cpu/gate" then (compute(1) while File.exist?("gate")) # who looks releases the lock
        when "/many" then (seconds * 300).to_i.times { Cwork.without_gvl(0.003) }
        when "/many/gate" then (Cwork.without_gvl(0.003) while File.exist?("gate"))
        when "/blocking-fiber" then Fiber.new(blocking: true) { sleep(seconds) }.resume
        when "/held" then Cwork.with_gvl(seconds)
        when "/kept" then Cwork.with_gvl_while(env["QUERY_STRING"], 300)
        when "/c" then Cwork.computes_with_gvl(seconds)
        when "/thread" then Thread.new { sleep(0.1); File.write("begun-thread", ""); Cwork.with_gvl(seconds) }
        when "/cpu" then compute(seconds)
        when "/work" then compute(seconds, Process::CLOCK_THREAD_CPUTIME_ID)
        when "/sleep" then sleep(seconds)
        when "/held/sleep" then (Cwork.with_gvl(seconds); sleep(0.3))
        when "/kept/gate" then (Cwork.with_gvl_while(env["QUERY_STRING"], 300); Cwork.without_gvl(0.02) while File.exist?("gate"))
        when "/much-later/free" then (sleep(1.5); File.write("begun-now", ""); Cwork.without_gvl(seconds))
        when "/fork" then Process.wait(fork { exit!(0) })
        when "/digest" then return [200, {}, [Digest::SHA256.hexdigest(env["rack.input"].read)]]
        when "/begun" then return [200, {}, [JSON.generate(BEGUN)]]
        when "/figures"
          page = Fairlead.page
          slots = page.slots.times.map { |slot| page.read(slot).slice(*FIGURES) }
          return [200, {}, [JSON.generate(slots.select { |slot| slot[:state] > 0 })]]
        when "/routes" then return [200, {}, [JSON.generate(Fairlead.page.routes)]]
        end
        threads = "\#{began} \#{Thread.current.native_thread_id}" # in which it began, and has ended
        [200, { "x-start" => env["HTTP_X_REQUEST_START"], "x-threads" => threads, "x-number" => number.to_s }, [Process.pid.to_s]]
      }
    RUBY

    # @param server [ServerProcess] of one worker.
    # @return [Array<Integer>] the numbers of the requests with which it has begun, in that order.
    def begun(server) = JSON.parse(server.get("/begun").body)

    # @return [Hash{Integer => Array<Integer>}] the processes in which each request has run, also such as have ended, in the order in
    #   which the requests began.
    def runs(server)
      lines = File.readlines(server.path("ran")).map { |line| line.split.map(&:to_i) }
      lines.group_by(&:first).transform_values { |found| found.map(&:last) }
    end

    # @return [Float] when a request came, in seconds since 1970.
    def arrival(response) = response["x-start"].delete_prefix("t=").to_f

    # Stops a worker that has nothing to do: its siblings go on giving it requests.
    def suspend_at_rest(server, pid)
      eventually("worker #{pid} is at rest") do
        figures = figures_of(server, pid)
        figures[:in_flight].zero? && figures[:heartbeat_age] > 0.05
      end
      HeldConnections.stop(pid)
    end

    # What the page shows of a worker. The supervisor can tell, though no worker is awake.
    def figures_of(server, pid)
      workers = ServerSelection.new(ControlSocket.servers, pid: server.pid).server[:status][:workers]
      workers.find { |worker| worker[:pid] == pid }
    end

    # @return [Integer] the worker that sleeps with Ruby's lock. One that is asked may hand the request on before it begins.
    def stuck_worker(server)
      eventually("a worker is stuck") do
        server.worker_pids.find { |pid| figures_of(server, pid)&.dig(:stalled, :kind) == "stuck" }
      end
    end

    # @return [Array<Hash{Symbol => Integer}>] of each worker.
    def slots(server) = JSON.parse(server.get("/figures").body, symbolize_names: true)

    # @return [Hash{Symbol => Integer}] sums over all workers.
    def figures(server)
      slots(server).flat_map(&:to_a).group_by(&:first).transform_values { |pairs| pairs.sum(&:last) }
    end

    # Sends a request on a connection of its own, and waits until the app has begun with it.
    #
    # @param known [Boolean] whether it has the route of all such; else it is the first of its route, so that nobody can
    #   have learnt that it stalls.
    def stall(server, path, seconds, on: nil, known: false)
      @stalls = (@stalls || 0) + 1
      client = on || client(to: server, timeout: 60)
      path = "#{path}/~#{new_word}" unless known
      FileUtils.rm_f(server.path("begun-#{@stalls}")) # another test has had the same number
      client.write("GET #{path}?#{seconds}&#{@stalls} HTTP/1.1\r\nHost: a\r\n\r\n")
      eventually("the app has begun") { File.exist?(server.path("begun-#{@stalls}")) }
      client
    end

    # Likewise, for a request that sleeps with Ruby's lock until {#release}, however slow the machine is. When this returns, no
    # other thread of its worker runs.
    def keep_stuck(server, path = "/kept", on: nil)
      kept = "kept-#{new_word}"
      client = on || client(to: server, timeout: 60)
      client.write("GET #{path}/~#{new_word}?#{kept} HTTP/1.1\r\nHost: a\r\n\r\n")
      eventually("it sleeps with the lock") { File.exist?(server.path(kept)) }
      client
    end

    # Lets all go on that {#keep_stuck} has begun.
    def release(server) = Dir[server.path("kept-*")].each { |path| File.delete(path) }

    # Who asks for /gate and its like meanwhile stalls until the block is done, however slow the machine is.
    def while_the_gate_is_closed(server)
      gate = server.write("gate", "")
      yield
    ensure
      File.delete(gate)
    end

    # @return [String] letters that no route has had so far.
    def new_word = Array.new(12) { rand(97..122).chr }.join

    # @return [Array<Integer>] the workers that serve all that comes.
    def regular_workers(server)
      server.worker_pids.select { |pid| server.title(pid).match?(/fairlead: worker/) }
    end

    # @return [Array<Integer>] those that serve while all regular ones are stuck.
    def relief_workers(server) = server.worker_pids.select { |pid| server.title(pid).include?("relief") }

    # Waits for the end of those that other tests have called.
    def await_regular_workers_alone(server) = eventually("relief workers have left") { relief_workers(server).empty? }

    # A connection of each worker. Those who rest leave new connections to each other: some have to work.
    #
    # @return [Hash{Integer => HTTPClient}] by process
    def client_of_each(server, workers = regular_workers(server))
      await_regular_workers_alone(server)
      found = {}
      eventually("each worker has answered") do
        clients = Array.new(4) { client(to: server, timeout: 60).write("GET /cpu?0.01 HTTP/1.1\r\nHost: a\r\n\r\n") }
        clients.each { |client| found[client.response.body.to_i] ||= client }
        (workers - found.keys).empty?
      end
      found.slice(*workers)
    end

    # Another connection of that worker.
    def client_of(server, pid)
      kept = nil
      eventually("worker #{pid} has another connection") do
        kept = client_of_each(server, [pid])[pid]
        kept.get("/").body.to_i == pid
      end
      kept
    end

    # The slowest of some requests that come one after the other, each on a new connection.
    def slowest(server, count = 5, path = "/")
      Array.new(count) do
        duration { assert_equal "200", server.get(path).code }
      end.max
    end
  end
end
