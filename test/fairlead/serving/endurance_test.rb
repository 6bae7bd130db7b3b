# frozen_string_literal: true

require "open3"
require_relative "../../helper"
require_relative "../../burst"

module Fairlead
  # Much, for long, and while the garbage collector does its worst.
  class EnduranceTest < Test
    include Burst
    needs :machine

    MIXED = <<~'RUBY'
      EACH = Class.new { def each = (yield "one"; yield "two") }.new
      run lambda { |env|
        case env["PATH_INFO"]
        when "/each" then [200, {}, EACH]
        when "/stream" then [200, {}, ->(stream) { stream << "streamed"; stream.close }]
        when "/post" then [200, {}, [env["rack.input"].read.to_s]]
        when "/wait" then sleep 0.0001; [200, {}, ["waited"]]
        when "/child" then Async { sleep 0.0001 }; [200, {}, ["parent"]]
        when "/finished" then env["rack.response_finished"] << ->(*) { nil }; [200, {}, ["finished"]]
        when "/large" then [200, {}, ["x" * 40_000]]
        else [200, { "content-type" => "text/plain" }, ["hello"]]
        end
      }
    RUBY
    PATHS = %w[/ /?a=1&b=2 /each /stream /wait /child /finished /large].freeze

    # What wrk sends: all paths in turn, each twentieth time a form, and now and then on a new connection.
    SCRIPT = <<~LUA
      local paths = { #{PATHS.map { |path| "\"#{path}\"" }.join(", ")} }
      local count = 0
      request = function()
        count = count + 1
        if count % 20 == 0 then return wrk.format("POST", "/post", nil, "posted") end
        if count % 200 == 7 then return wrk.format("GET", "/", { ["Connection"] = "close" }) end
        if count % 4 ~= 0 then return wrk.format("GET", "/hello") end
        return wrk.format("GET", paths[count / 4 % #PATHS + 1])
      end
    LUA
    private_constant :SCRIPT

    def test_a_million_requests_in_flat_memory
      with_server(MIXED, "--queue-target", "0", lint: false) do |server|
        script = server.write("mixed.lua", SCRIPT.sub("#PATHS", "#paths"))
        worker = server.worker_pids.first
        served = 0
        memory = []
        until served >= 1_000_000
          served += wrk(server, "-c32", "-t1", "-d3s", "-s", script)
          memory << [served, resident(worker)]
        end
        _, early = memory.find { |count, _| count >= 200_000 }
        # An object of the smallest kind, left behind by each request, would be 40 MB.
        assert_operator memory.last[1] - early, :<, 20 * 1024 * 1024, "requests and bytes: #{memory}"
      end
    end

    def test_ten_thousand_requests_that_wait_at_once
      skip_without_descriptors
      app = "DONE = Thread::Queue.new\nrun ->(env) { env[\"PATH_INFO\"] == \"/end\" ? DONE.close : DONE.pop; [200, {}, [\"waited\"]] }"
      with_server(app, "--queue-target", "0", lint: false, **descriptors) do |server|
        worker = server.worker_pids.first
        holder = hold_connections(server, 10_000, "waited", at_once: 10_000)
        eventually("all wait") { in_flight(server) >= 10_000 }
        assert_operator resident(worker) / 1_048_576, :<, 320, "MB"
        server.get("/end")
        assert_equal "answered\n", holder.gets
        assert_equal [worker], server.worker_pids
      ensure
        holder&.close
      end
    end

    def test_ten_thousand_idle_connections
      skip_without_descriptors
      with_server(MIXED, "--queue-target", "0", lint: false, **descriptors) do |server|
        worker = server.worker_pids.first
        wrk(server, "-c100", "-t1", "-d1s")
        before = resident(worker)
        holder = hold_connections(server, 10_000, "hello", at_once: 1)
        assert_equal "answered\n", holder.gets
        grown = resident(worker) - before
        assert_operator grown, :<, 20 * 1024 * 1024
        assert_equal "hello", server.get("/").body
      ensure
        holder&.close
      end
    end

    def test_all_kinds_of_bodies_under_gc_stress
      # Not from the start: loading under stress tests Ruby, and takes minutes; so does telling of requests that all stall, noting where
      # slow ones wait, and so would Rack::Lint, under which the next test has the same app.
      app = MIXED.sub("case env[\"PATH_INFO\"]", <<~RUBY.chomp)
        case env["PATH_INFO"]
        when "/stress"
          Fairlead::WaitSampler.prepend(Module.new { def arm = nil })
          GC.stress = true
          [200, {}, []]
      RUBY
      with_server(app, "--queue-timeout", "300", "--stall-report", "0", lint: false) do |server|
        assert_all_kinds(server)
        server.get("/stress")
        2.times { assert_all_kinds(server) }
      end
    end

    def test_objects_move_while_requests_are_served
      compact = "GC.auto_compact = true\n" + MIXED.sub("case env[\"PATH_INFO\"]", <<~'RUBY'.chomp)
        case env["PATH_INFO"]
        when "/verify" then GC.verify_compaction_references(toward: :empty, expand_heap: true); [200, {}, ["verified"]]
        when "/compact" then GC.compact; [200, {}, ["compacted"]]
      RUBY
      with_server(compact) do |server|
        %w[/verify /compact].each do |path|
          answers = burst(server, (PATHS + ["/wait"] * 5 + [path]) * 2, within: 180)
          assert_each_equal 200, answers, server, &:status
          assert_all_kinds(server)
        end
      end
    end

    private

    def assert_all_kinds(server)
      answers = burst(server, PATHS, within: 300)
      assert_equal %w[hello hello onetwo streamed waited parent finished] + ["x" * 40_000],
                   answers.map(&:body)
      assert_equal "posted", server.post("/post", "posted").body
    end

    # @return [Integer] how many requests were answered. Fails if one was not answered with 200.
    def wrk(server, *flags)
      output, status = Open3.capture2e("wrk", *flags, server.address, **descriptors[:spawn_options])
      assert status.success?, output
      refute_match(/Socket errors|Non-2xx/, output)
      output[/(\d+) requests in/, 1].to_i
    end

    def in_flight(server) = ServerSelection.new(ControlSocket.servers, pid: server.pid).server[:status][:workers].sum { |one| one[:in_flight] }

    def resident(pid) = File.read("/proc/#{pid}/status")[/^VmRSS:\s+(\d+)/, 1].to_i * 1024

    # A process of its own, so that the limit of this one does not count; it says when all have been answered so, and ends when its pipe is
    # closed.
    #
    # @param at_once [Integer] so many ask before it waits for their answers.
    def hold_connections(server, count, answer, at_once:)
      code = <<~RUBY
        require "socket"
        sockets = Array.new(#{count}) { TCPSocket.new("127.0.0.1", #{server.port}) }
        sockets.each_slice(#{at_once}) do |some|
          some.each { |socket| socket.write("GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n") }
          some.each { |socket| socket.readpartial(1000).end_with?(#{answer.inspect}) or raise }
        end
        puts "answered"
        $stdout.flush
        $stdin.read
      RUBY
      IO.popen([RbConfig.ruby, "-e", code], "r+", **descriptors[:spawn_options])
    end

    def descriptors = { spawn_options: { rlimit_nofile: Process.getrlimit(:NOFILE)[1] } }

    def skip_without_descriptors
      skip "a process may have only #{Process.getrlimit(:NOFILE)[1]} descriptors here" if Process.getrlimit(:NOFILE)[1] < 11_000
    end
  end
end
