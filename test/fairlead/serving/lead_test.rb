# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # The loop of a worker has a driver, and a request's wait lasts, whatever an app does to fibers that have served it: to those that
  # rest, to the one that drives, and to the one that is about to.
  class LeadTest < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      # What an app may keep, and use too late.
      FIBERS = []
      WAYS = {
        "kill" => ->(fiber) { fiber.kill },
        "raise" => ->(fiber) { fiber.raise("too late") },
        "cancel" => ->(fiber) { fiber.raise(Async::Cancel) },
        "transfer" => ->(fiber) { fiber.transfer }
      }
      # Done by the scheduler itself, which nobody keeps waiting.
      Later = Struct.new(:act) do
        def alive? = true
        def transfer(*) = act.call
      end
      run(lambda do |env|
        _, what, way = env["PATH_INFO"].split("/")
        case what
        when "held"
          FIBERS << [Fiber.current, Thread.current]
          sleep 0.01 until FIBERS.size >= 8
          [200, {}, ["held"]]
        when "do"
          others = FIBERS.slice!(0..).filter_map { |fiber, thread| fiber if thread == Thread.current } - [Fiber.current]
          # A busy machine may have made another thread lead, or this fiber a ninth.
          next [200, {}, ["others"]] if others.size != 7

          Fiber.scheduler.push(Later.new(-> { others.each { |fiber| WAYS[way].call(fiber) if fiber.alive? } }))
          [200, {}, ["done"]]
        when "naps"
          started = now
          sleep 0.2
          napped = now - started
          File.write("napped", ".", mode: "a")
          sleep 0.01 until File.exist?("answered")
          [200, {}, [napped.to_s]]
        else [200, {}, ["hello"]]
        end
      end)
    RUBY

    %w[kill raise cancel transfer].each do |way|
      define_method("test_#{way}_of_fibers_that_rest_costs_no_request_its_wait_or_its_turn") do
        server = with_server(APP, lint: false)
        eventually("it is done to the seven others") do
          held = Array.new(8) { Thread.new { server.get("/held").body } }
          assert_each_equal "held", held.map(&:value), server
          server.get("/do/#{way}").body == "done"
        end

        napping = Array.new(4) { Thread.new { server.get("/naps").body.to_f } }
        eventually("they nap for the second time") { File.exist?(server.path("napped")) && File.size(server.path("napped")) == 4 }
        assert_equal "hello", server.get("/").body
        File.write(server.path("answered"), "")
        assert_operator napping.map(&:value).min, :>=, 0.2
        refute_includes server.log, "FiberError"
      end
    end

    # The scheduler finds both in one go: there is a request, so the driver is put on the ready list; and the pipe is readable,
    # so an exception arrives in it before the list comes to it.
    RAISED_IN_ON_THE_READY_LIST = <<~'RUBY'
      require "socket"
      CPU = -> { Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) }
      run(lambda do |env|
        case env["PATH_INFO"]
        when "/driver"
          $driver = Fiber.current
          [200, {}, ["drives from here on"]]
        when "/arm"
          reader, writer = IO.pipe
          $writer = writer
          Async(transient: true) do
            reader.wait_readable
            $driver.alive? && Fiber.scheduler.raise($driver, RuntimeError, "too late")
          end
          [200, {}, ["armed"]]
        when "/busy"
          Async(transient: true) do
            sleep 0.01 until File.exist?("driven")
            File.write("busy", "")
            Fiber.blocking { sleep 0.001 until File.exist?("sent") }
            $writer.write("x")
          end
          [200, {}, ["soon"]]
        else [200, {}, ["hello"]]
        end
      end)
    RUBY

    def test_an_exception_in_the_driver_on_the_ready_list_ends_nothing_else
      server = with_server(RAISED_IN_ON_THE_READY_LIST, lint: false)
      server.connect do |socket|
        %w[/arm /busy /driver].each { |path| assert_equal 200, ask(socket, path).status }
        File.write(server.path("driven"), "")
        eventually("the scheduler is busy") { File.exist?(server.path("busy")) }
        socket.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        File.write(server.path("sent"), "")
        assert_equal "hello", HTTPClient.new(socket).response.body
      end
      3.times { assert_equal "hello", server.get("/").body }
      assert_includes server.log, "too late"
      refute_includes server.log, "FiberError"
    end

    FORKS = <<~'RUBY'
      class Parts
        def each
          child = fork or return yield("of the child")
          Process.wait(child)
          yield "#{$?.exitstatus}"
        end
      end
      run ->(env) { [200, { "content-type" => "text/plain" }, Parts.new] }
    RUBY

    def test_the_child_of_a_fork_that_goes_on_with_the_first_part_of_a_body_ends_in_peace
      server = with_server(FORKS, lint: false)
      assert_equal "0", server.get("/").body
      assert_equal "0", server.get("/").body
      refute_includes server.log, "Error"
    end

    # As where the system allows no more memory maps: Ruby asks for them when a fiber is made, or when it goes on for the first time.
    NO_MORE_FIBERS = <<~'RUBY'
      Fairlead::Server # loads the reactor
      NO_MORE = lambda do |way|
        next if !File.exist?("no-more-#{way}") || (ENV["STANDBYS"] && !Thread.current.name&.start_with?("fairlead reactor"))

        File.write("refused", ".", mode: "a")
        raise FiberError, "can't alloc machine stack to fiber: Cannot allocate memory"
      end
      Fiber.attr_accessor :fresh
      Fiber.singleton_class.prepend(Module.new do
        def new(**, &block)
          NO_MORE.call("new")
          super(**) { |*arguments| (Fiber.current.fresh = nil) || block.call(*arguments) }.tap { |fiber| fiber.fresh = true }
        end
      end)
      Fairlead::Selector.prepend(Module.new { def resume(fiber, ...) = (NO_MORE.call("transfer") if fiber.fresh) || super })
      # Nobody claims the lead later.
      Fairlead::Reactor.prepend(Module.new { def claim_later = File.write("no-more", "") }) if ENV["ONCE"]
      run(lambda do |env|
        name = env["PATH_INFO"].delete_prefix("/")
        next [200, {}, ["hello"]] if name.empty?

        File.write("#{name} waits", "")
        sleep 0.01 until File.exist?("#{name} goes on")
        [200, {}, ["waited"]]
      end)
    RUBY

    %w[new transfer].each do |way|
      define_method("test_where_there_are_no_more_fibers_for_#{way}_requests_are_served_as_soon_as_there_are") do
        server = with_server(NO_MORE_FIBERS, lint: false)
        server.write("no-more-#{way}", "")
        waiting = wait_in(server, "first")
        beside = Thread.new { server.get("/").body }
        eventually("no other could be made") { server.log.include?("Cannot allocate memory") }
        File.delete(server.path("no-more-#{way}"))

        assert beside.join(5), "it is tried again" # else another reactor leads after a while
        assert_equal "hello", beside.value
        server.write("first goes on", "")
        assert_equal "waited", waiting.value
        assert_predicate server.stop, :success?
        refute_includes server.log, "killed"
      end
    end

    # All serve requests, the owner of the lead too, when the system allows no more.
    def test_where_there_are_no_more_fibers_the_first_that_is_free_leads_at_once
      server = with_server(NO_MORE_FIBERS, lint: false, env: { "ONCE" => "1" })
      first, second = wait_in(server, "first"), wait_in(server, "second")
      server.write("no-more-new", "")
      third = wait_in(server, "third")
      eventually("no other could be made") { File.exist?(server.path("no-more")) }
      server.write("first goes on", "")

      assert_equal "waited", first.value
      assert_equal "hello", server.get("/").body
      %w[second third].each { |name| server.write("#{name} goes on", "") }
      assert_equal %w[waited waited], [second, third].map(&:value)
    end

    %w[new transfer].each do |way|
      define_method("test_standbys_end_where_there_are_no_more_fibers_for_#{way}_and_the_others_serve") do
        server = with_server(NO_MORE_FIBERS, lint: false, env: { "STANDBYS" => "1" }, files: { "no-more-#{way}" => "" })
        tasks = "/proc/#{server.worker_pids.first}/task/*/comm"
        eventually("both were refused") { File.exist?(server.path("refused")) && File.size(server.path("refused")) >= 2 }
        eventually("both have ended") { Dir[tasks].none? { |file| (File.read(file) rescue "").start_with?("fairlead reac") } }

        assert_equal "hello", server.get("/").body
        assert_predicate server.stop, :success?
        refute_match(/killed|FiberError/, server.log)
      end
    end

    ON_A_STANDBY = <<~'RUBY'
      class Events
        def each = loop { yield "data: #{Thread.current.name}\n\n"; sleep 0.02 }
      end
      run(lambda do |env|
        case env["PATH_INFO"]
        when "/gate"
          Fiber.blocking { sleep 0.05 until File.exist?("open") }
          [200, {}, ["through"]]
        when "/events" then [200, { "content-type" => "text/event-stream" }, Events.new]
        else [200, {}, [Thread.current.name.to_s]]
        end
      end)
    RUBY

    def test_a_standby_serves_streams_and_requests_while_it_leads_and_the_streams_after_it
      server = with_server(ON_A_STANDBY, lint: false)
      blocked = Thread.new { server.get("/gate").body }
      eventually("a standby leads") { server.get("/").body.start_with?("fairlead reactor") }
      streams = Array.new(20) { server.connect.tap { |socket| socket.write("GET /events HTTP/1.1\r\nHost: a\r\n\r\n") } }

      streams.each { |stream| await_events(stream, 5) }
      20.times { assert_match(/\Afairlead reactor/, server.get("/").body) }
      File.write(server.path("open"), "")
      assert_equal "through", blocked.value
      streams.each { |stream| await_events(stream, 5) }
      20.times { assert_equal "200", server.get("/").code }
    ensure
      streams&.each(&:close)
    end

    private

    # @return [Thread] of a request that waits.
    def wait_in(server, name)
      thread = Thread.new { server.get("/#{name}").body }
      eventually("it waits") { File.exist?(server.path("#{name} waits")) }
      thread
    end

    def await_events(stream, count)
      count -= 1 if stream.gets.start_with?("data: fairlead reactor") until count.zero?
      pass
    end

    def ask(socket, path)
      socket.write("GET #{path} HTTP/1.1\r\nHost: a\r\n\r\n")
      HTTPClient.new(socket).response
    end
  end
end
