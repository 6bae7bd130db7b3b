# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # However the app forks: the child holds no socket of a client or a listener, serves nobody, and the parent goes on.
  # Covers fiber_safety/fork_guard.rb, fiber_safety/stray_child.rb
  class ForkAnywhereTest < Test
    include SpeaksHTTP

    # The libraries of an app may have handlers of their own around a fork. These wait where a file says so.
    SLOW = <<~C
      #include <pthread.h>
      #include <unistd.h>
      static void before(void) { if (access("slow-before", F_OK) == 0) usleep(600000); }
      static void in_child(void) { if (access("slow-in-child", F_OK) == 0) usleep(600000); }
      __attribute__((constructor)) static void enter(void) { pthread_atfork(before, NULL, in_child); }
      void Init_slow(void) {}
    C

    # What a process has of the server's sockets, seen from itself: their own port is the server's.
    # So is a socket over which workers pass connections.
    LOOK = <<~'RUBY'
      def sockets_of_server(port)
        Dir.children("/proc/self/fd").map(&:to_i).filter_map do |fd|
          socket = BasicSocket.for_fd(fd).tap { |found| found.autoclose = false }
          address = socket.local_address
          fd if address.ip? ? address.ip_port == port : socket.getsockopt(:SOCKET, :TYPE).int == Socket::SOCK_SEQPACKET
        rescue SystemCallError, ArgumentError, SocketError
          nil
        end
      end
    RUBY

    APP = <<~RUBY.freeze
      require "socket"
      #{LOOK}

      # Of the child: what it has, and that it was there.
      def look(port)
        File.write("child-\#{Process.pid}", sockets_of_server(port).inspect)
        0
      end

      LOOK_FROM_OUTSIDE = ->(port) { [RbConfig.ruby, "-rsocket", "look.rb", port.to_s] }
      status = ->(pid) { Process.wait2(pid)[1].exitstatus.to_s }

      WAYS = {
        "block" => ->(port) { status[fork { look(port); exit 7 }] },
        "process" => ->(port) { status[Process.fork { look(port); exit 7 }] },
        "no-block" => ->(port) { pid = fork or (look(port); exit(7)); status[pid] },
        "falls-through" => ->(port) { pid = fork or look(port); pid ? status[pid] : "served by the child" },
        "raises" => ->(port) { pid = fork or (look(port); raise "in the child"); status[pid] },
        "sleeps" => ->(port) { pid = fork or (look(port); sleep(0.05); exit(7)); status[pid] },
        "waits" => ->(port) { pid = fork or (look(port); IO.select([IO.pipe[0]], nil, nil, 0.05); Thread::Queue.new.pop(timeout: 0.05); exit(7)); status[pid] },
        "term" => ->(port) { pid = fork { look(port); sleep }; sleep(0.05) until File.size?("child-\#{pid}"); Process.kill(:TERM, pid); Process.wait2(pid)[1].termsig.to_s },
        "term-default" => ->(port) { pid = fork { trap(:TERM, "DEFAULT"); look(port); sleep }; sleep(0.05) until File.size?("child-\#{pid}"); Process.kill(:TERM, pid); Process.wait2(pid)[1].termsig.to_s },
        "kernel-rescue" => ->(port) { pid = Kernel.fork { trap(:INT, "DEFAULT"); look(port); begin; sleep; rescue Interrupt; exit!(7); end }; sleep(0.05) until File.size?("child-\#{pid}"); Process.kill(:INT, pid); status[pid] },
        "trap" => ->(port) { pid = fork { trap(:TERM) { exit!(7) }; look(port); sleep }; sleep(0.05) until File.size?("child-\#{pid}"); Process.kill(:TERM, pid); status[pid] },
        "double" => ->(port) { status[fork { status[fork { look(port) }]; look(port); exit 7 }] },
        "popen" => ->(port) { IO.popen("-") { |io| io ? io.read : (look(port); print "7") } },
        "popen-no-block" => ->(port) { io = IO.popen("-") or (look(port); $stdout.print("7"); $stdout.flush; exit!(0)); io.read.tap { io.close } },
        "daemon" => ->(_) { Process.daemon(true, true); exit!(7) },
        "fork-daemon" => ->(port) { status[fork { Process.daemon(true, true); look(port) }] },
        "thread-daemon" => ->(_) { Thread.new { Process.daemon(true, true); exit!(7) }.join },
        "task" => ->(port) { pid = nil; Async { pid = fork or (look(port); exit(7)) }.wait; status[pid] },
        "task-ends" => ->(port) { pid = nil; Async { pid = fork or look(port) }.wait; status[pid] },
        "task-raises" => ->(port) { pid = nil; Async { pid = fork or (look(port); raise("in the task")) }.wait; status[pid] },
        "task-block" => ->(port) { pid = nil; Async { pid = fork { look(port); exit(7) } }.wait; status[pid] },
        "enumerator" => ->(port) { status[Enumerator.new { |pids| pids << (fork || look(port)) }.next] },
        "fiber" => ->(port) { status[Fiber.new { fork or look(port) }.resume] },
        "blocking-fiber" => ->(port) { status[Fiber.new(blocking: true) { fork or look(port) }.resume] },
        "thread" => ->(port) { Thread.new { pid = fork or (look(port); exit(7)); status[pid] }.value },
        "offload" => ->(port) { Fairlead.offload { pid = fork or (look(port); exit(7)); status[pid] } },
        "system" => ->(port) { system(*LOOK_FROM_OUTSIDE[port]); $?.exitstatus.to_s },
        "spawn" => ->(port) { status[spawn(*LOOK_FROM_OUTSIDE[port])] },
        "backquotes" => ->(port) { `\#{LOOK_FROM_OUTSIDE[port].join(" ")}`; $?.exitstatus.to_s },
        "popen-program" => ->(port) { IO.popen(LOOK_FROM_OUTSIDE[port]) { |io| io.read }; $?.exitstatus.to_s }
      }

      class ResponseStream
        def initialize(look) = @look = look
        def each
          yield "5"
          pid = fork or (@look.call; exit(7))
          yield Process.wait2(pid)[1].exitstatus.to_s
        end
      end

      run lambda { |env|
        port = env["SERVER_PORT"].to_i
        case path = env["PATH_INFO"].delete_prefix("/")
        when "once"
          File.write("waits-\#{env["QUERY_STRING"]}", "")
          sleep(0.005) until File.exist?("go-\#{env["QUERY_STRING"]}")
          File.write("once", env["QUERY_STRING"] + " in \#{Process.pid}\\n", mode: "a")
          [200, {}, ["once"]]
        when "pid" then [200, {}, [Process.pid.to_s]]
        when "stream" then [200, {}, ResponseStream.new(-> { look(port) })]
        when "slow" # what is loaded last is asked first as the process is about to fork
          place, seconds = env["QUERY_STRING"].split("&")
          begin
            require File.expand_path("slow.so") if place == "late"
            File.write("slow", "")
            Fairlead.request_timeout = 0.4 if ENV["FORKS_LATE"] # from now on: nothing waits before it forks
            status[fork { look(port); exit 7 }]
            sleep(seconds.to_f)
          rescue Fairlead::RequestTimeout, Fairlead::ClientGone => error
            File.write("told", "\#{error.class} in \#{Process.pid}")
            raise
          end
          [200, {}, ["slow"]]
        else [200, {}, [WAYS.fetch(path)[port]]]
        end
      }
    RUBY

    PROGRAM = "#{LOOK}\nFile.write(\"child-\#{Process.pid}\", sockets_of_server(ARGV[0].to_i).inspect)\nexit 7\n".freeze

    # What each answers; 7 unless it stands here. In any Ruby, the fiber that forks is the only one of the child: it ends with
    # that, and an enumerator has nobody to yield to.
    ANSWERS = { **%w[term term-default].to_h { |way| [way, Signal.list["TERM"].to_s] }, "enumerator" => "1", "fiber" => "0", "blocking-fiber" => "0", "falls-through" => "0", "raises" => "1", "task-ends" => "0", "task-raises" => "1", "fork-daemon" => "0",
                "stream" => "57" }.freeze
    WAYS = %w[block process no-block falls-through raises sleeps waits term term-default kernel-rescue trap double popen popen-no-block fork-daemon task
              task-ends task-raises task-block enumerator fiber blocking-fiber thread offload system spawn backquotes
              popen-program stream].freeze

    def server(name, prefix: [])
      shared_server(APP, name:, prefix:, files: { "look.rb" => PROGRAM }, lint: false)
    end

    def test_no_child_holds_a_socket_of_the_server_and_its_parent_goes_on
      each_way(server(:privileged))
    end

    # Ruby starts programs by vfork then, which calls no handlers.
    def test_so_it_is_without_privileges
      each_way(server(:unprivileged, prefix: ServerProcess::UNPRIVILEGED))
    end

    # A gem may come before Fairlead, and have something raised in the child before Fairlead's Ruby is asked there.
    def test_so_it_is_where_something_is_raised_as_the_fork_returns_in_the_child
      inner = <<~RUBY
        module Inner
          def _fork = super.tap { |pid| raise(NotImplementedError, "in the child") if pid.zero? && File.exist?("raise") }
        end
        Process.singleton_class.prepend(Inner)
      RUBY
      with_server(APP, files: { "look.rb" => PROGRAM, "inner.rb" => inner }, env: { "RUBYOPT" => "-r./inner" }, lint: false) do |server|
        server.write("raise", "")
        while_requests_wait(server, 3) do
          %w[block no-block falls-through task thread enumerator].each { |way| assert_equal "1", ask(server, way), way }
        end
        assert_each_once(server, 3)
      end
    end

    def test_process_daemon_raises_and_the_server_goes_on
      with_server(APP, lint: false) do |server|
        before = server.get("/pid").body
        %w[/daemon /thread-daemon].each { |path| assert_equal "500", server.get(path).code }
        assert_includes server.log, "Process.daemon would end this server: call it in a forked child"
        assert_equal before, server.get("/pid").body
      end
    end

    # By handlers that come before Fairlead's and after them; in the parent before the fork, and in the child.
    %w[early late].each do |place|
      { "slow-before" => "before", "slow-in-child" => "in_child" }.each do |file, moment|
        define_method("test_a_request_that_forks_slowly_#{moment}_with_#{place}_handlers_is_told_in_its_parent_only") do
          { "RequestTimeout" => ["--request-timeout", "60"], "ClientGone" => ["--cancel-abandoned"] }.each do |error, flags|
            with_slow_server(place, *flags, late: error == "RequestTimeout") do |server|
              server.write(file, "")
              # Others wait in the same worker as it is copied, and must not run in both.
              others = error == "ClientGone" ? 3 : 0
              while_requests_wait(server, others) do
                one = client(to: server).write("GET /slow?#{place}&100 HTTP/1.1\r\nHost: a\r\n\r\n")
                eventually("it has begun") { File.exist?(server.path("slow")) } # who leaves before its turn is not served
                sleep 0.1 # it most likely forks now
                error == "ClientGone" ? one.socket.close : assert_equal(504, one.response.status)
                told = eventually("it is told") { File.exist?(server.path("told")) && File.read(server.path("told"))[/.+/] }
                assert_equal "Fairlead::#{error} in #{server.worker_pids.first}", told
              end
              assert_each_once(server, others) if others.positive?
              assert_equal ["[]"], looks(server)
              assert_equal 1, server.worker_pids.size
            end
          end
        end
      end
    end

    # The watch thread hands what comes to the other worker.
    timing def test_others_are_served_while_a_process_is_copied
      with_slow_server("early", "--workers", "2") do |server|
        server.write("slow-before", "")
        slow = client(to: server).write("GET /slow?early&1 HTTP/1.1\r\nHost: a\r\n\r\n")
        eventually("it has begun") { File.exist?(server.path("slow")) }
        Array.new(12) { Thread.new { server.get("/pid") } }.each(&:join)
        assert slow.silent?(0), "they have waited for it"
        assert_equal 200, slow.response.status
      end
    end

    private

    def each_way(server)
      worker = server.get("/pid").body
      idle = Array.new(5) { server.connect }
      WAYS.each do |way|
        while_requests_wait(server, 1) do
          assert_equal ANSWERS.fetch(way, "7"), ask(server, way), -> { "#{way}: #{server.log.lines.last(8).join}" }
          assert_equal ["[]"], looks(server).uniq, way
        end
        Dir.glob(server.path("child-*")).each { |file| File.unlink(file) }
      end
      assert_each_once(server, WAYS.size)
      assert_equal worker, server.get("/pid").body
      assert_empty idle.select { |socket| socket.wait_readable(0) }, "connections are as they were"
    ensure
      idle&.each(&:close)
    end

    # So many requests wait in the worker, and are answered once the block is done.
    def while_requests_wait(server, count)
      names = Array.new(count) { @requests = (@requests || 0) + 1 }
      waiting = names.map { |name| Thread.new { server.get("/once?#{name}").body } }
      names.each { |name| eventually("request #{name} waits") { File.exist?(server.path("waits-#{name}")) } }
      yield
      names.each { |name| server.write("go-#{name}", "") }
      assert_each_equal "once", waiting.map(&:value), server if waiting.any?
    end

    def ask(server, way) = server.get("/#{way}").body

    # @return [Array<String>] what the children have found of the server's sockets.
    def looks(server) = eventually("a child has looked") { children(server).then { |seen| seen if seen.any? && seen.none?(&:empty?) } }

    def children(server) = Dir.glob(server.path("child-*")).map { |file| File.read(file) }

    def assert_each_once(server, count)
      lines = File.readlines(server.path("once"), chomp: true)
      assert_equal [server.worker_pids.first.to_s] * count, lines.map { |line| line[/\d+\z/] }, lines.join(", ")
    end

    # @param late [Boolean] whether its time is up as it forks.
    def with_slow_server(place, *flags, late: false)
      library = of_slow_handlers
      env = { "LD_PRELOAD" => (library if place == "early"), "FORKS_LATE" => ("yes" if late) }
      with_server(APP, *flags, env:, files: { "look.rb" => PROGRAM }, lint: false) do |server|
        FileUtils.cp(library, server.path("slow.so"))
        yield server
      end
    end

    def of_slow_handlers
      @slow_handlers ||= begin
        folder = Dir.mktmpdir("fairlead-slow-")
        Minitest.after_run { FileUtils.rm_rf(folder) }
        File.write(File.join(folder, "slow.c"), SLOW)
        assert system("cc", "-shared", "-fPIC", "-o", File.join(folder, "slow.so"), File.join(folder, "slow.c"), "-lpthread")
        File.join(folder, "slow.so")
      end
    end
  end
end
