# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../burst"

module Fairlead
  # Whatever a request waits for, the others go on: a hundred that each wait 0.2 s take little more than one.
  # Covers serving/scheduler.rb, serving/selector.rb
  class WaitingTest < Test
    include Burst

    APP = <<~'RUBY'
      require "json"
      require "monitor"
      require "net/http"
      require "resolv"
      require "socket"
      require "timeout"

      WAIT = 0.2
      HUNDRED = 100

      # What leaves a server of another kind after 0.2 s: a response, and an answer to who asks for a name's address.
      def greeting(socket)
        lambda do
          socket.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
          socket.close
        end
      end

      def naming(names, query, port, known:)
        head = [0x8180, 1, known ? 1 : 0, 0, 0].pack("n5")
        record = [0xc00c, 1, 1, 0, 4, 127, 0, 0, 1].pack("n3NnC4") if known
        -> { names.send("#{query.byteslice(0, 2)}#{head}#{query.byteslice(12..)}#{record}", 0, "127.0.0.1", port) }
      end

      # It runs in a process of its own. That it knows no address in IPv6, it tells at once.
      SLEEPER_PORTS, ports_to_tell = IO.pipe
      fork do
        supervisor = Process.ppid
        listener = TCPServer.new("127.0.0.1", 0)
        listener.listen(1024)
        names = UDPSocket.new
        names.bind(File.read("resolv.conf").split.last, 53)
        ports_to_tell.puts listener.addr[1]
        ports_to_tell.close
        due = []
        until Process.ppid != supervisor
          now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
          ready, = IO.select([listener, names], nil, nil, due.empty? ? 1 : [due[0][0] - now, 0].max)
          now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
          due << [now + WAIT, greeting(listener.accept)] if ready&.include?(listener)
          if ready&.include?(names)
            query, sender = names.recvfrom(512)
            ipv4 = query.end_with?("\0\1\0\1") # type A, class IN
            answer = naming(names, query, sender[1], known: ipv4)
            ipv4 ? due << [now + WAIT, answer] : answer.call
          end
          due.shift[1].call while due.any? && due[0][0] <= now
        end
        exit!
      end
      SLEEPER = SLEEPER_PORTS.gets.to_i

      # What ends the waits of a hundred fibers at one moment.
      def later(count = HUNDRED, &wake)
        $waiting = ($waiting || 0) + 1
        return if $waiting < count

        $waiting = 0
        Thread.new { sleep WAIT; wake.call }
      end

      MUTEX, CONDITION = Thread::Mutex.new, Thread::ConditionVariable.new
      MONITOR = Monitor.new
      MONITOR_CONDITION = MONITOR.new_cond
      QUEUE, SIZED = Thread::Queue.new, Thread::SizedQueue.new(1)
      HELD = Array.new(HUNDRED) { Thread::Mutex.new }
      LOCKS = Array.new(HUNDRED) { Monitor.new }
      $turn = -1

      PROGRAM = "echo >> started; until [ -e go ]; do sleep 0.2; done"

      KINDS = {
        "sleep" => -> { sleep WAIT },
        "pipe" => lambda {
          reader, writer = IO.pipe
          Thread.new { sleep WAIT; writer.write "x"; writer.close }
          reader.read
          reader.close
        },
        "socket-read" => lambda {
          socket = TCPSocket.new("127.0.0.1", SLEEPER)
          socket.read
          socket.close
        },
        "socket-write" => lambda {
          ours, theirs = UNIXSocket.pair
          ours.setsockopt(:SOCKET, :SNDBUF, 4_096)
          Thread.new { sleep WAIT; theirs.read; theirs.close }
          ours.write("x" * 20_000)
          ours.close
        },
        "net-http" => -> { Net::HTTP.get(URI("http://127.0.0.1:#{SLEEPER}/")) == "hello" or raise },
        "mutex" => lambda {
          mutex = HELD[$turn = ($turn + 1) % HUNDRED]
          taken = Thread::Queue.new
          Thread.new { mutex.synchronize { taken << 1; sleep WAIT } }
          taken.pop
          mutex.synchronize { }
        },
        "monitor" => lambda {
          lock = LOCKS[$turn = ($turn + 1) % HUNDRED]
          taken = Thread::Queue.new
          Thread.new { lock.synchronize { taken << 1; sleep WAIT } }
          taken.pop
          lock.synchronize { lock.synchronize { } }
        },
        "condition" => -> { MUTEX.synchronize { later { MUTEX.synchronize { CONDITION.broadcast } }; CONDITION.wait(MUTEX) } },
        "condition-timeout" => -> { MUTEX.synchronize { CONDITION.wait(MUTEX, WAIT) } },
        "monitor-condition" => lambda {
          MONITOR.synchronize { later { MONITOR.synchronize { MONITOR_CONDITION.broadcast } }; MONITOR_CONDITION.wait }
        },
        "queue" => -> { later { HUNDRED.times { QUEUE << 1 } }; QUEUE.pop },
        "queue-timeout" => -> { Thread::Queue.new.pop(timeout: WAIT) },
        "sized-queue" => -> { later { (HUNDRED - 1).times { SIZED.pop } and SIZED.clear }; SIZED << 1 },
        "thread-join" => -> { Thread.new { sleep WAIT }.join },
        "thread-value" => -> { Thread.new { sleep WAIT; 7 }.value == 7 or raise },
        # Only the system's resolver of this server's knows the names; if it held the thread, each request would wait 0.2 s.
        "dns" => -> { Addrinfo.getaddrinfo("harbour.test", nil, nil, :STREAM).map(&:ip_address) == ["127.0.0.1"] or raise },
        "dns-to-connect" => -> { TCPSocket.new("harbour.test", SLEEPER).close },
        "dns-in-ruby" => -> { Resolv.getaddress("harbour.test") == "127.0.0.1" or raise },
        "timeout" => lambda {
          begin
            Timeout.timeout(WAIT) { sleep 60 }
            raise "no timeout"
          rescue Timeout::Error
            nil
          end
        },
        "timeout-unneeded" => -> { Timeout.timeout(60) { sleep WAIT } },
        "select" => lambda {
          reader, writer = IO.pipe
          IO.select([reader], nil, nil, WAIT)
          reader.close
          writer.close
        },
        "wait-readable" => lambda {
          reader, writer = IO.pipe
          reader.wait_readable(WAIT).nil? or raise
          reader.close
          writer.close
        },
        "file-lock" => lambda {
          File.open("lock-#{$turn = ($turn + 1) % HUNDRED}", "w") do |held|
            held.flock(File::LOCK_EX)
            Thread.new { sleep WAIT; held.flock(File::LOCK_UN) }
            File.open(held.path) { |file| file.flock(File::LOCK_EX) == 0 or raise }
          end
        },
        "file-lock-in-turn" => lambda {
          File.open("turns", "w") { |file| file.flock(File::LOCK_EX); sleep 0.002 }
        },
        "process-wait" => -> { Process.wait(spawn(PROGRAM)) },
        "process-detach" => -> { Process.detach(spawn(PROGRAM)).value.success? or raise },
        "system" => -> { system(PROGRAM) or raise },
        "backticks" => -> { `#{PROGRAM}; echo done` == "done\n" or raise },
        "popen" => -> { IO.popen(PROGRAM, &:read) },
      }

      run lambda { |env|
        KINDS.fetch(env["PATH_INFO"].delete_prefix("/")).call
        [200, {}, ["done"]]
      }
    RUBY

    # The server's own view of the system: names are looked up at the sleeper. Runs side by side have addresses of their own.
    PREFIX = ["unshare", "--mount", "sh", "-c", 'mount --bind resolv.conf /etc/resolv.conf && exec "$@"', "sh"].freeze
    NAMESERVER = "nameserver 127.53.#{Process.pid.divmod(250).map { |part| (part % 250) + 1 }.join(".")}\n".freeze

    def server = shared_server(APP, "--queue-target", "0", prefix: PREFIX, files: { "resolv.conf" => NAMESERVER })

    %w[sleep pipe socket-read socket-write net-http mutex monitor condition condition-timeout monitor-condition queue
       queue-timeout sized-queue thread-join thread-value timeout timeout-unneeded select wait-readable file-lock dns
       dns-to-connect dns-in-ruby].each do |kind|
      define_method("test_a_hundred_requests_wait_at_once_for_#{kind.tr("-", "_")}") { assert_wait_together(kind, 100) }
    end

    # One holds it while the others want it: if waiting held the thread, none would ever go on.
    def test_requests_of_one_worker_pass_a_file_lock_on
      assert_operator seconds_of_burst(server, ["/file-lock-in-turn"] * 20), :<, 20
    end

    %w[process-wait process-detach system backticks popen].each do |kind|
      define_method("test_twenty_requests_wait_at_once_for_#{kind.tr("-", "_")}") do
        %w[started go].each { |name| FileUtils.rm_f(server.path(name)) }
        waiting = Thread.new { burst(server, ["/#{kind}"] * 20) }
        eventually("the programs of all run") { File.size?(server.path("started")) == 20 }
        server.write("go", "")
        assert_each_equal 200, waiting.value, server, &:status
      ensure
        server.write("go", "")
      end
    end

    private

    # One after the other, they would take 20 s.
    def assert_wait_together(kind, count)
      seconds = seconds_of_burst(server, ["/#{kind}"] * count)
      assert_operator seconds, :<, 17, "#{count} × #{kind}"
      assert_operator seconds, :>=, 0.19, "#{count} × #{kind} did not wait"
    end
  end
end
