# frozen_string_literal: true

require "io/wait"
require "json"
require_relative "../../helper"

module Fairlead
  # An exception at every single wait of what a server does for a request: nothing is left behind, and the next request of
  # that fiber finds nothing of it.
  class CancelledAnywhereTest < Test
    APP = <<~'RUBY'
      require "async"
      require "timeout"
      Fairlead::Server # loads the scheduler
      BIG = "x" * 3_000_000
      $finished = Hash.new(0)
      $fibers = {}.compare_by_identity

      # At the n-th wait of a request to /try/… something is raised there, by another fiber.
      module Raising
        KINDS = {
          "deadline" => ->(fiber, _) { fiber.raise(Fairlead::RequestTimeout, "raised") },
          "gone" => ->(fiber, _) { fiber.raise(Fairlead::ClientGone, "raised") },
          "cancel" => ->(fiber, _) { fiber.async_task.cancel },
          "timeout" => ->(_, env) { env["timeouts"]&.each { |timeout| timeout.duration = 0 unless timeout.cancelled? } },
          "both" => ->(fiber, env) { KINDS["timeout"].(fiber, env); fiber.raise(Fairlead::RequestTimeout, "raised") }
        }
        %i[block io_wait io_read io_write kernel_sleep].each do |name|
          define_method(name) { |*arguments, **options| raise_at_this_wait; super(*arguments, **options) }
        end
        # Requests wait for their client here.
        def await(request, &) = (raise_at_this_wait; super)
        def give_way = (raise_at_this_wait; super)

        private

        def raise_at_this_wait
          fiber = Fiber.current
          env = fiber.fairlead_serving_fiber&.request&.env or return
          return unless env["PATH_INFO"].start_with?("/try/")

          kind, n = env["QUERY_STRING"].split("&")
          return unless (env["waits"] = env["waits"].to_i + 1) == n.to_i

          env["rack.errors"].puts "raised #{env["PATH_INFO"]}?#{env["QUERY_STRING"]}"
          request = fiber.fairlead_serving_fiber.request
          raising = -> { KINDS.fetch(kind).call(fiber, env) if fiber.fairlead_serving_fiber.request.equal?(request) }
          push(Object.new.tap do |object|
            object.define_singleton_method(:alive?) { true }
            object.define_singleton_method(:direct?) { false }
            object.define_singleton_method(:transfer) { |*| raising.call }
          end)
        end
      end
      Fairlead::Scheduler.prepend(Raising)

      body = ->(&each) { Object.new.tap { |object| object.define_singleton_method(:each, &each); object.define_singleton_method(:close) { sleep 0.001 } } }
      PATHS = {
        "offload" => ->(_) { 3.times { Fairlead.offload { sleep 0.002 } }; [200, {}, ["done"]] },
        "input" => ->(env) { [200, {}, [env["rack.input"].read.bytesize.to_s]] },
        "stream" => ->(_) { [200, {}, ->(stream) { 2.times { stream.write(BIG); sleep 0.001 }; stream.close }] },
        "each" => ->(_) { [200, {}, body.call { |&block| 2.times { block.call(BIG); sleep 0.001 } }] },
        "finished" => ->(env) { 2.times { |i| (env["rack.response_finished"] ||= []) << ->(*) { sleep 0.001; sleep 0.001 } }; [200, {}, ["done"]] },
        "hijack" => lambda do |env|
          socket = env["rack.hijack"].call
          socket.write("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
          2.times { sleep 0.001; socket.write(BIG) }
          [200, {}, []]
        ensure
          socket&.close
        end,
        "partial" => lambda do |_|
          [200, { "rack.hijack" => lambda do |socket|
            2.times { sleep 0.001; socket.write(BIG) }
          ensure
            socket.close
          end }, []]
        end,
        # A close waits until those that read have let go.
        "close" => lambda do |_|
          reader, writer = IO.pipe
          Async { reader.read(1) rescue IOError }
          begin
            reader.close
          ensure
            $open = $open.to_i + 1 unless reader.closed?
            [reader, writer].each(&:close)
          end
          sleep 0.001
          [200, {}, ["done"]]
        end,
        # The report of an exception waits too.
        "fails" => lambda do |env|
          errors = env["rack.errors"]
          env["rack.errors"] = Object.new.tap { |slow| slow.define_singleton_method(:puts) { |text| sleep 0.001; errors.puts(text) } }
          Thread.current[:left] = env
          sleep 0.001
          raise "on purpose"
        end,
        "section" => lambda do |_|
          Fairlead::Uninterruptible.run { 2.times { sleep 0.001 }; $sections = $sections.to_i + 1 }
          sleep 0.001
          [200, {}, ["done"]]
        ensure
          Fairlead::Uninterruptible.run { sleep 0.001; $cleaned = $cleaned.to_i + 1 }
        end
      }

      # But for those of reactors: a busy machine may have one more, or one less.
      def descriptors = Dir.children("/proc/self/fd").count { |name| !File.readlink("/proc/self/fd/#{name}").start_with?("anon_inode") rescue false }

      require "json"
      group = nil
      clean = lambda do
        group ||= ObjectSpace.each_object(Fairlead::ReactorGroup).first
        fiber = Fiber.current
        $fibers[fiber] = true
        {
          awaited: group.instance_variable_get(:@awaited).size, deadlines: group.instance_variable_get(:@deadlines).instance_variable_get(:@running).size,
          slept: (sleep(0.002); true), popped: Queue.new.pop(timeout: 0.002).inspect, offloaded: Fairlead.offload { 1 },
          section: fiber.fairlead_section.inspect, postponed: fiber.fairlead_postponed.inspect, locals: Thread.current.keys,
          descriptors: (GC.start; descriptors), sections: $sections.to_i - $cleaned.to_i, found: $found.to_i,
          open: $open.to_i
        }
      end
      run(lambda do |env|
        $found = $found.to_i + 1 if Thread.current[:left]
        _, what, path = env["PATH_INFO"].split("/")
        next [200, {}, [$fibers.size.to_s]] if what == "fibers"
        next [200, {}, [JSON.generate(clean.call)]] if what == "clean"

        app = PATHS.fetch(path)
        next app.call(env) unless env["QUERY_STRING"].start_with?("timeout", "both")

        Fiber.scheduler.with_timeout(3600) do |outer|
          Fiber.scheduler.with_timeout(3600) do |inner|
            env["timeouts"] = [inner, outer]
            app.call(env)
          end
        end
      end)
    RUBY

    PATHS = APP[/PATHS = \{.*?\n\}/m].scan(/^  "(\w+)"/).flatten.freeze
    KINDS = %w[deadline gone cancel timeout both].freeze
    MOST = 40

    def server = shared_server(APP, "--cancel-abandoned", "--request-timeout", "30", "--body-buffer", "64KB", lint: false)

    PATHS.each do |path|
      KINDS.each do |kind|
        define_method("test_#{kind}_at_each_wait_of_#{path}") do
          ask(path, kind, MOST)
          @at_first = eventually("nothing else runs") { clean.then { |now| now if now.values_at("awaited", "deadlines") == [0, 1] } }
          waits = (1..MOST).find do |n|
            ask(path, kind, n)
            await_clean("wait #{n}")
            !server.log.include?("raised /try/#{path}?#{kind}&#{n}\n")
          end
          assert_operator waits, :>, 1, "it has waited"
          assert_operator server.get("/fibers").body.to_i, :<, 4 + (KINDS.size * MOST)
        end
      end
    end

    private

    def clean = JSON.parse(server.get("/clean").body)

    # Connections before it may still be on their way out.
    def await_clean(what)
      now = nil
      eventually { (now = clean).except("descriptors") == @at_first.except("descriptors") && now["descriptors"] <= @at_first["descriptors"] }
    rescue Minitest::Assertion
      assert_equal @at_first, now, "after #{what}"
    end

    # A client that sends and reads in pieces.
    def ask(path, kind, n)
      server.connect do |socket|
        body = path == "input" ? "y" * 400_000 : ""
        socket.write("POST /try/#{path}?#{kind}&#{n} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: #{body.size}\r\n\r\n")
        body.chars.each_slice(150_000) { |piece| socket.write(piece.join); sleep 0.003 }
        sleep 0.003
        loop do
          socket.wait_readable(10) or flunk "#{path}, #{kind} at wait #{n}: no answer"
          socket.readpartial(1_000_000)
        end
      rescue EOFError, SystemCallError
        nil
      end
    end
  end
end
