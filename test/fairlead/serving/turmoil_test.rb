# frozen_string_literal: true

require "json"
require_relative "../../helper"
require_relative "../../burst"

module Fairlead
  # Everything at once, at random: waits, timeouts, races, errors, cancellations, clients that go. Nobody may be left
  # without an answer, and nothing may be left behind.
  class TurmoilTest < Test
    include Burst

    APP = <<~'RUBY'
      require "json"
      require "timeout"

      QUEUE, SIZED, MUTEX, MONITOR = Thread::Queue.new, Thread::SizedQueue.new(2), Thread::Mutex.new, Monitor.new
      SLOW_PARTS = Struct.new(:count) { def each = count.times { |i| yield "part" * 300; sleep 0.001 if i.odd? } }

      ACTS = [
        ->(random) { sleep random.rand * 0.02 },
        ->(_) { QUEUE << 1; QUEUE.pop(timeout: 0.01) },
        ->(random) { QUEUE.pop(timeout: random.rand * 0.01) },
        ->(random) { Timeout.timeout(random.rand * 0.01) { sleep random.rand * 0.02 } rescue nil },
        ->(random) { Timeout.timeout(random.rand * 0.005) { MUTEX.synchronize { sleep 0.001 } } rescue nil },
        ->(random) { MUTEX.synchronize { sleep random.rand * 0.003 } },
        ->(_) { MONITOR.synchronize { sleep 0.0005 } },
        ->(_) { Thread.new { sleep 0.001; 7 }.value },
        ->(random) { task = Async { sleep random.rand * 0.01 }; random.rand < 0.5 ? task.wait : task.stop },
        ->(random) { Async { sleep random.rand * 0.02 } },
        lambda { |_|
          reader, writer = IO.pipe
          Thread.new { sleep 0.002; writer << "x"; writer.close }
          reader.read
          reader.close
        },
        ->(_) { Async::Task.current.yield },
        ->(random) { raise "on purpose" if random.rand < 0.3 },
        ->(random) { task, after = Async::Task.current, random.rand * 0.02; Async { sleep after; task.stop } },
        ->(_) { SIZED.push(1, timeout: 0.002); SIZED.pop(timeout: 0.002) },
        ->(random) { `true` if random.rand < 0.1 },
        ->(random) { Async::Task.current.stop if random.rand < 0.2 },
      ].freeze

      def left
        scheduler = Fiber.scheduler
        tasks = scheduler.traverse.map { |task, _| task }.drop(1).reject { |task| task.annotation || task.transient? } # ours have one
        threads = (Thread.list - [Thread.main]).reject { |thread| thread.name&.start_with?("fairlead") }
        { blocked: scheduler.instance_variable_get(:@blocked), waiting: scheduler.selector.waiting, tasks: tasks.size,
          in_flight: Fairlead.stats[:workers][0][:in_flight], threads: threads.size }
      end

      run lambda { |env|
        next [200, {}, [JSON.generate(left)]] if env["PATH_INFO"] == "/left"

        random = Random.new(env["QUERY_STRING"].to_i)
        random.rand(4).times { ACTS.sample(random:).call(random) }
        case random.rand(5)
        when 0 then [200, {}, SLOW_PARTS.new(random.rand(40))]
        when 1 then [200, {}, ->(stream) { random.rand(20).times { stream << "y" * 3000; sleep 0.001 }; stream.close }]
        when 2 then [200, {}, [env["rack.input"].read.to_s]]
        else [200, {}, ["answered"]]
        end
      }
    RUBY

    def test_nobody_waits_for_ever_and_nothing_is_left_behind
      with_server(APP, "--queue-target", "0") do |server| # nobody is turned away
        outcomes = Array.new(30) { |seed| Thread.new { client(server, Random.new(seed), 30) } }.flat_map(&:value).tally
        assert_operator outcomes["200"], :>, 500
        assert_empty outcomes.keys - ["200", "500", "gone"]

        nothing = { "blocked" => 0, "waiting" => 0, "tasks" => 0, "in_flight" => 0, "threads" => 0 }
        left = nil
        600.times { (left = JSON.parse(server.get("/left").body)) == nothing ? break : sleep(0.1) }
        assert_equal nothing, left
        assert_each_equal 200, burst(server, ["/?7"] * 20), server, &:status
        assert_equal 1, server.worker_pids.size
      end
    end

    private

    # @return [Array<String>] the statuses of its answers, at least so many; "gone", where its connection had ended; else what
    #   was wrong.
    def client(server, random, count)
      outcomes = []
      until outcomes.size >= count
        server.connect do |socket|
          random.rand(1..6).times do
            socket.write(request(random))
            break if random.rand < 0.15 # it goes without its answer

            next outcomes << "no answer within 60 s" unless socket.wait_readable(60)

            status = socket.readpartial(200_000)[%r{\AHTTP/1.1 (\d+)}, 1]
            outcomes << status if status # otherwise more of an earlier answer
          end
        rescue SystemCallError, EOFError
          outcomes << "gone"
        end
      end
      outcomes
    end

    def request(random)
      return "GET /?#{random.rand(1 << 30)} HTTP/1.1\r\nHost: a\r\n\r\n" * random.rand(1..3) if random.rand < 0.7

      "POST /?#{random.rand(1 << 30)} HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n#{"b" * 20_000}"
    end
  end
end
