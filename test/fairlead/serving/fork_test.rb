# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../burst"
require_relative "../../http_client"

module Fairlead
  # A process forked in a request has its parent's connections in its hands: it must not touch them.
  class ForkTest < Test
    include Burst

    APP = <<~'RUBY'
      def status(pid) = Process.wait2(pid)[1].exitstatus.to_s

      WAYS = {
        "/block" => -> { status(fork { exit 3 }) },
        "/exit" => -> { pid = fork; exit(4) unless pid; status(pid) },
        "/raise" => -> { pid = fork; raise("in the child") unless pid; status(pid) },
        "/return" => -> { pid = fork; pid ? status(pid) : "from the child" },
        "/collect" => -> { status(fork { GC.start; ObjectSpace.garbage_collect; exit 5 }) },
        "/sleep" => -> { status(fork { sleep 0.05; Thread::Queue.new.pop(timeout: 0.01); `true`; exit 6 }) },
        "/double" => -> { status(fork { Process.setsid; fork { sleep 60 }.then { |pid| File.write("daemon", pid) }; exit 7 }) },
        "/system" => -> { system("exit 8"); $?.exitstatus.to_s },
        "/popen" => -> { IO.popen("-") { |io| io ? io.read : print("child") } },
        "/nap" => -> { sleep 0.2; "slept" },
        "/full" => lambda {
          before = $stdout.dup
          reader, writer = IO.pipe
          $stdout.reopen(writer)
          $stdout.sync = false
          nil until writer.write_nonblock("x" * 4096, exception: false) == :wait_writable
          $stdout.write("kept until there is room")
          Thread.new { sleep 0.2; reader.readpartial(1 << 20) }
          status(fork { exit!(9) }).tap { $stdout.reopen(before) }
        }
      }
      run ->(env) { [200, {}, [WAYS.fetch(env["PATH_INFO"]).call]] }
    RUBY

    EXPECTED = { "/block" => "3", "/exit" => "4", "/raise" => "1", "/return" => "0", "/collect" => "5", "/sleep" => "6",
                 "/double" => "7", "/system" => "8", "/popen" => "child" }.freeze

    # TERM comes before the child has let go of the server's traps.
    EARLY = <<~'RUBY'
      Fairlead::Signals.singleton_class.prepend(Module.new { def leave_to_default(...) = Process.kill(:TERM, Process.pid) && super })
      run ->(_) { [200, {}, [Process.wait2(fork { exit!(0) })[1].termsig.to_s]] }
    RUBY
    private_constant :EARLY

    def test_a_child_that_is_told_to_end_at_once_ends
      with_server(EARLY) { |server| assert_equal Signal.list["TERM"].to_s, server.get.body }
    end

    def test_a_child_answers_nobody_and_closes_no_connection
      with_server(APP) do |server|
        server.connect do |idle|
          EXPECTED.each do |path, expected|
            others = Thread.new { burst(server, ["/nap"] * 5) }
            server.connect do |socket|
              2.times { assert_equal [200, expected], ask(socket, path), path }
            end
            assert_each_equal "slept", others.value, server, &:body
          end
          assert_equal [200, "slept"], ask(idle, "/nap"), "a connection older than all these children"
        end
        assert_equal 1, server.worker_pids.size
      ensure
        Process.kill(:KILL, File.read(server.path("daemon")).to_i)
      end
    end

    # It has copies of all sockets, which would keep them open.
    def test_a_child_that_lives_on_keeps_neither_connections_nor_addresses
      with_server(APP) do |server|
        socket = server.connect
        socket.write("GET /double HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert_match(/7\z/, socket.read, "the connection ends though a process lives on that knew it")
        daemon = File.read(server.path("daemon")).to_i
        port = server.port
        server.stop
        assert server.alive?(daemon)
        assert_raises(Errno::ECONNREFUSED) { TCPSocket.new("127.0.0.1", port).close }
      ensure
        socket&.close
        Process.kill(:KILL, daemon) if daemon
      end
    end

    # The app forks them as it is loaded, in hooks, and in threads that it leaves running: in the supervisor and in workers.
    def test_children_that_the_app_forks_outside_of_requests_keep_nothing_of_the_server
      app = <<~RUBY
        $child = ->(name) { File.write(name, fork { sleep }) }
        $child.call("loaded")
        Thread.new { sleep 0.01 until File.exist?("go"); $child.call("thread"); File.write("done", "") }
        run ->(_) { [200, {}, []] }
      RUBY
      config = "before_fork { $child.call(\"before\") if $child }\nafter_fork { $child.call(\"after\") }"
      [["--preload", 4], ["--no-preload", 3]].each do |flag, count|
        with_server(app, "-w", "1", "-b", "http://127.0.0.1:0", flag, files: { "config/fairlead.rb" => config }) do |server|
          server.write("go", "")
          eventually("the thread has forked") { File.exist?(server.path("done")) }
          children = %w[loaded thread before after].filter_map { |name| File.read(server.path(name)).to_i if File.exist?(server.path(name)) }
          server.stop

          assert_equal count, children.size
          children.each { |child| assert_empty opened(child).grep(/\Asocket:/) - notifications }
          assert(children.all? { |child| server.alive?(child) })
          assert_raises(Errno::ECONNREFUSED) { server.connect }
          children.each { |child| Process.kill(:TERM, child) }
          eventually("a signal ends them") { children.none? { |child| server.alive?(child) } }
        ensure
          children&.each { |child| server.alive?(child) && Process.kill(:KILL, child) }
        end
      end
    end

    # A fork writes it first, and waits for that.
    def test_what_the_app_has_printed_and_nobody_reads_stops_no_other_request
      with_server(APP) do |server|
        forks, naps = Array.new(2) { server.connect.tap { |socket| socket.timeout = 20 } }
        forks.write("GET /full HTTP/1.1\r\nHost: a\r\n\r\n")
        assert_equal [200, "slept"], ask(naps, "/nap")
        assert_equal [200, "9"], hear(forks)
      ensure
        [forks, naps].compact.each(&:close)
      end
    end

    # Fairlead's pool, which an app may load before the server, closes the connections of the parent in the child. Closing may wait, and must
    # not do so in the parent's scheduler.
    def test_closing_the_pools_of_the_parent_may_wait_in_the_child
      app = <<~'RUBY'
        Slow = Class.new { def close = (sleep(0.01); File.write("closed", "")) }
        POOL = Fairlead::Pool.new(size: 1) { Slow.new }
        run(lambda do |env|
          POOL.with { nil }
          [200, {}, ["#{Process.wait2(fork { exit 3 })[1].exitstatus} #{File.exist?("closed")}"]]
        end)
      RUBY
      with_server(app, ruby_flags: ["-rfairlead/pool"]) do |server|
        assert_equal "3 true", server.get.body
        refute_match(/"severity":"error"/, server.log)
      end
    end

    private

    # @return [Array<String>] sockets over which processes speak to a service manager, as /proc calls them.
    def notifications
      File.readlines("/proc/net/unix").map(&:split).filter_map { |row| "socket:[#{row[6]}]" if row[4] == "0002" }
    end

    def ask(socket, path)
      socket.write("GET #{path} HTTP/1.1\r\nHost: a\r\n\r\n")
      hear(socket)
    end

    def hear(socket)
      answer = HTTPClient.new(socket).response
      [answer.status, answer.body]
    end
  end
end
