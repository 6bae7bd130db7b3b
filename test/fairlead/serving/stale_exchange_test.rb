# frozen_string_literal: true

require "open3"
require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # The core uses the memory of a request again for the next one. Whoever still has a request that is over must not reach it.
  class StaleExchangeTest < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      OVER, GONE_ON = Thread::Queue.new, Thread::Queue.new

      # Ends the request while its head is being made, and goes on when the next one has begun to answer.
      END_IT = lambda do |env|
        env["rack.hijack"].abandon
        OVER << true
        GONE_ON.pop
        "another's bytes"
      end

      class Headers
        def initialize(env) = @env = env
        def each = yield("x-late", END_IT.call(@env))
      end

      class Value
        def initialize(env) = @env = env
        def to_s = END_IT.call(@env)
      end

      HEADS = {
        "/each" => ->(env) { [200, Headers.new(env), []] },
        "/to-s" => ->(env) { [200, { "x-late" => Value.new(env) }, []] },
        "/array" => ->(env) { [200, { "x-late" => [Value.new(env), "again"] }, []] },
        "/status" => ->(env) { [Struct.new(:env) { def to_i = END_IT.call(env).size }.new(env), {}, []] },
        "/upgrade" => ->(env) { [200, { "rack.protocol" => Value.new(env) }, ->(_) {}] }
      }

      run lambda { |env|
        next HEADS.fetch(env["PATH_INFO"]).call(env) if HEADS.key?(env["PATH_INFO"])

        OVER.pop
        body = lambda do |stream|
          stream.write("first ")
          stream.flush
          GONE_ON << true
          sleep 0.05
          stream.write("last")
          stream.close
        end
        [200, {}, body]
      }
    RUBY

    %w[/each /to-s /array /status /upgrade].each do |path|
      define_method(:"test_a_head_whose_request_is_over_goes_nowhere_#{path.delete("/").tr("-", "_")}") do
        with_server(APP, lint: false) do |server|
          other = client(to: server).request("GET", "/next")
          assert_nil client(to: server).get(path), "it was abandoned"
          assert_equal "first last", other.response.body
          eventually("it is logged") { server.log.include?("the request has been answered (IOError)") }
        end
      end
    end

    # Writers that take turns with the handlers, and go on as their responses end: see Loop's lock.
    THREADS = <<~'RUBY'
      LIVE = []
      START_WRITERS = lambda do
        2.times do
          Thread.new do
            loop do
              live = LIVE.dup
              sleep 0.001 if live.empty?
              live.each do |stream|
                stream << "LEAK"
              rescue StandardError
                LIVE.delete(stream)
              end
            end
          end
        end
      end
      run lambda { |env|
        $writers ||= START_WRITERS.call
        next [200, {}, ->(stream) { LIVE << stream; sleep(0.002); stream.close }] if env["PATH_INFO"] == "/stream"

        [200, {}, Enumerator.new { |parts| 6.times { parts << "P" * 50; sleep 0.0005 } }]
      }
    RUBY

    def test_threads_that_write_to_streams_that_end_write_to_no_other
      with_server(THREADS, lint: false) do |server|
        ends = monotonic + 4
        clients = %w[/plain /stream].cycle.first(12).map do |path|
          Thread.new do
            connection = HTTPClient.new(server.connect)
            bodies = []
            bodies << connection.get(path).body while monotonic < ends
            [path, bodies]
          ensure
            connection.close
          end
        end
        plain = clients.map(&:value).select { |path,| path == "/plain" }.flat_map(&:last)

        assert_each_equal "P" * 300, plain, server
        refute_empty plain, "the writers leave no turns"
        assert_match(/\A\d+\z/, server.worker_pids.join)
      end
    end

    # What a body has given is sent as it was, whatever becomes of the String or Array while its client is waited for.
    CHANGES = <<~'RUBY'
      SIZE = 12 << 20
      CHANGING = {
        "shorter" => ->(string) { string.replace("b") },
        "other" => ->(string) { string.replace("b" * SIZE) },
        "gone" => ->(string) { string.clear },
        "longer" => ->(string) { string << "b" * SIZE }
      }
      run lambda { |env|
        kind, change = env["PATH_INFO"].split("/").last(2)
        string = "a" * SIZE
        array = [string]
        Thread.new { sleep 0.2; array.clear; CHANGING.fetch(change).call(string) }
        next [200, {}, array] if kind == "array"

        [200, {}, kind == "stream" ? ->(stream) { stream << string; stream.close } : Enumerator.new { |parts| parts << string }]
      }
    RUBY

    def test_what_changes_while_it_is_sent_is_sent_as_it_was
      with_server(CHANGES, lint: false) do |server|
        %w[stream parts array].each do |kind|
          slow = %w[shorter other gone longer].to_h { |change| [change, client(to: server).request("GET", "/#{kind}/#{change}")] }
          sleep 0.4
          slow.each do |change, client|
            body = client.response.body
            assert_equal [12 << 20, "a"], [body.bytesize, body.squeeze], "#{kind} #{change}"
          end
        end
      end
    end

    CLOSING = <<~'RUBY'
      require "fairlead"
      require "fairlead/serving/server"
      limits = Fairlead::Server.const_get(:LIMITS).to_h { |name| [name, Fairlead::Configuration.new.public_send(name)] }
      closed = %i[turn prepare_wait woken expired take rejections stop takeable counts]
      [false, true].each do |watched|
        looped = Fairlead::Loop.new({ **limits, body_size: 1 << 40, record_rejections: false, https_port: 0, trusted_proxies: [] })
        looped.watch(tick: 2, blocked: 4, stuck: 7, computing: 60, lost: 0, drain: 0, drain_streams: 0, priority: 0) if watched
        ready = Queue.new
        threads = Array.new(3) do |number|
          Thread.new do
            (looped.register && looped.start_watch) if watched && number.zero?
            ready << true
            loop { number == 2 ? looped.prepare_wait(false) : looped.wait(nil) || sleep(0.001) }
          rescue IOError => error
            error.message
          ensure
            looped.unregister
          end
        end
        3.times { ready.pop }
        sleep 0.02
        looped.close
        threads.each do |thread|
          thread.join(5) or abort "still in it: #{thread.backtrace}"
          abort thread.value unless thread.value == "the loop is closed"
        end
        closed.each do |method|
          looped.public_send(method, *([false] if %i[prepare_wait stop].include?(method)))
          abort "#{method} of a closed loop"
        rescue IOError => error
          abort error.message unless error.message == "the loop is closed"
        end
      end
      print "closed"
    RUBY

    def test_a_loop_may_be_closed_while_threads_use_it
      output, status = Open3.capture2e({ "MALLOC_PERTURB_" => "90" }, RbConfig.ruby, "-I", "lib", "-e", CLOSING)

      assert_equal ["closed", true], [output, status.success?]
    end

    SECONDS = <<~'RUBY'
      run lambda { |env|
        begin
          Fairlead.request_timeout = eval(env["QUERY_STRING"])
          [200, {}, ["taken"]]
        rescue ArgumentError => error
          [400, {}, [error.message]]
        end
      }
    RUBY

    def test_seconds_that_are_none_are_refused
      with_server(SECONDS, "--request-timeout", "5") do |server|
        %w[-1 -0.001 0 Float::NAN Float::INFINITY -Float::INFINITY 1e300 2**80].each do |seconds|
          answer = server.get("/?#{seconds}")
          assert_equal "400", answer.code, seconds
          assert_match(/the time of a request must be .* 1000000000 seconds, not/, answer.body, seconds)
        end
        %w[100 50.5 nil 1e9 30r].each { |seconds| assert_equal "taken", server.get("/?#{seconds}").body, seconds }
      end
    end
  end
end
