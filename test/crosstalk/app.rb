# frozen_string_literal: true

module Fairlead
  class Crosstalk
    # Answers a request with nothing but its token, in every way there is, while threads, forks and the collector disturb it.
    APP = <<~'RUBY'
      $LOAD_PATH << ENV.fetch("CWORK")
      require "cwork/cwork"

      # Streams with their tokens, to which threads of the app's write until they fail, also after their responses' ends.
      Live = Struct.new(:stream, :token, :lock)
      LIVE = []
      # And those that are handed on.
      HUB = Thread::Queue.new

      # A header value that other threads may run behind.
      Switching = Struct.new(:text) do
        def to_s
          Thread.pass
          text
        end
      end

      Parts = Struct.new(:token, :count) do
        def each
          count.times do |index|
            yield token * 10
            sleep 0.0005 if (index % 7).zero?
          end
        end
      end

      module Disturb
        class << self
          def start
            @started ||= [Thread.new { write }, Thread.new { write }, Thread.new { close }, Thread.new { pass_on }, Thread.new { relax }]
          end

          # In short slices, so that others come in between at every moment; without a pause for a third of each second.
          def write
            Thread.current.priority = -6
            loop do
              live = LIVE.dup
              sleep 0.002 if live.empty? || Process.clock_gettime(Process::CLOCK_MONOTONIC) % 1 > 0.33
              live.each { |one| write_to(one) }
            end
          end

          def write_to(one)
            one.lock.synchronize { one.stream << one.token }
          rescue IOError, Fairlead::ClientGone
            LIVE.delete(one)
          end

          def close
            loop do
              sleep rand * 0.004
              LIVE.sample&.stream&.close
            end
          end

          def pass_on
            loop do
              stream, bytes = HUB.pop
              stream << bytes
              stream.close
            rescue IOError, Fairlead::ClientGone
              nil
            end
          end

          # While the collector runs at each allocation, it does so for all threads, and these have their turns before the request that
          # has begun it comes to its end: on a busy machine that took a minute, and nobody was answered.
          def relax
            loop do
              sleep 0.1
              GC.stress = false
            end
          end

          def collect(kind)
            case kind
            when 0 then GC.compact
            when 1 then GC.start(full_mark: false)
            else
              GC.stress = true
              5.times { |index| "x" * index }
              GC.stress = false
            end
          ensure
            GC.stress = false
          end
        end
      end

      def headers(token) = { "x-token" => token, "x-again" => [token, Switching.new(token)], "x-lines" => Switching.new("#{token}\n#{token}") }

      def hijack(io, token, count)
        Thread.new do
          count.times { io.write(token * 10) }
        rescue SystemCallError, IOError
          nil # the client has gone
        ensure
          io.close
        end
      end

      # The body changes while it is sent.
      def changing(body)
        Thread.new do
          Thread.pass
          body.first.replace(body.first[0, 11])
          body.clear
        end
        body
      end

      WAYS = {
        "/fixed" => ->(env, token, count) { [token * count] },
        "/pieces" => ->(env, token, count) { Array.new(count) { token } },
        "/large" => ->(env, token, count) { [token * 2000 * count] },
        "/parts" => ->(env, token, count) { Parts.new(token, count) },
        "/changing" => ->(env, token, count) { changing([token * count, token]) },
        "/sleep" => ->(env, token, count) { sleep(rand * 0.01); [token * count] },
        "/late" => ->(env, token, count) { sleep(0.8); [token * count] },
        "/offload" => ->(env, token, count) { [Fairlead.offload { token * count }] },
        "/blocks" => ->(env, token, count) { Cwork.without_gvl(0.01); [token * count] },
        "/holds" => ->(env, token, count) { Cwork.with_gvl(0.02); [token * count] },
        "/collect" => ->(env, token, count) { Disturb.collect(count % 3); [token * count] },
        "/fork" => ->(env, token, count) { Process.wait(fork { exit! }); [token * count] },
        "/system" => ->(env, token, count) { system("true"); [token * count] },
        "/echo" => ->(env, token, count) { [env["rack.input"].read.to_s] },
        "/echo-parts" => ->(env, token, count) { input = env["rack.input"]; Enumerator.new { |parts| while (part = input.read(5000)) do parts << part end } },
        "/stream" => ->(env, token, count) { ->(stream) { count.times { stream << (token * 20) }; stream.close } },
        "/live" => ->(env, token, count) { ->(stream) { LIVE << Live.new(stream, token, Mutex.new); sleep(rand * 0.005) } },
        "/thread" => lambda { |env, token, count|
          lambda do |stream|
            Thread.new { count.times { stream.write(token * 20) }; stream.close rescue nil }
            sleep(rand * 0.003) if count.odd?
          end
        },
        "/task" => ->(env, token, count) { ->(stream) { Async { count.times { stream << token; sleep(0.0005) }; stream.close } } },
        "/hub" => ->(env, token, count) { ->(stream) { HUB << [stream, token * count] } }
      }

      run lambda { |env|
        Disturb.start
        next [200, {}, [Fairlead.stats[:workers].sum { |worker| worker[:handed] }.to_s]] if env["PATH_INFO"] == "/handed"

        token, count = env["QUERY_STRING"].split("&")
        count = count.to_i
        case env["PATH_INFO"]
        when "/hijack"
          io = env["rack.hijack"].call
          io.write("HTTP/1.1 200 OK\r\nx-token: #{token}\r\nconnection: close\r\n\r\n")
          hijack(io, token, count)
          next [200, {}, []]
        when "/partial"
          next [200, headers(token).merge("rack.hijack" => ->(io) { hijack(io, token, count) }), []]
        end
        env["rack.early_hints"]&.call("link" => "<#{token}>") if count.odd?
        [200, headers(token), WAYS.fetch(env["PATH_INFO"]).call(env, token, count)]
      }
    RUBY
  end
end
