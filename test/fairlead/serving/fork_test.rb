# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../burst"

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

    def test_a_child_answers_nobody_and_closes_no_connection
      with_server(APP) do |server|
        server.connect do |idle|
          EXPECTED.each do |path, expected|
            others = Thread.new { burst(server, ["/nap"] * 5) }
            server.connect do |socket|
              2.times { assert_equal [200, expected], ask(socket, path), path }
            end
            others.value.each { |answer| assert_equal "slept", answer.body, path }
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

    private

    def ask(socket, path)
      socket.write("GET #{path} HTTP/1.1\r\nHost: a\r\n\r\n")
      hear(socket)
    end

    def hear(socket)
      head = +""
      head << socket.gets until head.end_with?("\r\n\r\n")
      [head[/ (\d+)/, 1].to_i, socket.read(head[/content-length: (\d+)/, 1].to_i)]
    end
  end
end
