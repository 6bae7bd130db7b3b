# frozen_string_literal: true

require "io/nonblock"
require "socket"
require_relative "../../helper"

module Fairlead
  # What requests write to a file that other processes share: standard output.
  # Covers fiber_safety/shared_files.rb
  class SharedFilesTest < Test
    APP = <<~'RUBY'
      require "fcntl"
      require "timeout"
      $stdout.sync = true
      Listed = Class.new { def to_ary = ["listed"]; def to_s = "named" }
      def peak = File.exist?("/proc/self/status") ? File.read("/proc/self/status")[/^VmHWM:\s+(\d+)/, 1].to_i * 1024 : 0
      ANSWERS = {
        "/puts" => -> { $stdout.puts "line", "x" * 200, "ended\n", ["a", 1]; puts "short"; p :inspected },
        "/encodings" => -> { $stdout.puts "\xff".b, "é", "wide".encode("UTF-16LE") },
        "/objects" => -> { [$stdout.write("a", [1, [2]]), $stdout.write(nil, :b, Listed.new)] },
        "/body" => lambda {
          reader, writer = Socket.pair(:UNIX, :STREAM)
          body = "x" * 60_000_000
          counted = Async { sum, piece = 0, +""; sum += reader.readpartial(65_536, piece).bytesize while sum < 60_000_004; sum }
          before = peak
          [writer.write("head", body), counted.wait, peak - before < 40_000_000]
        },
        "/log" => -> { $stdout.puts "=" * 4_000; "logged" },
        "/lines" => -> { 3_000.times { $stdout.puts "line" }; "logged" },
        "/long" => -> { $stdout.puts "=" * 40_000; "logged" },
        "/threads" => lambda {
          begun = 0
          trace = TracePoint.new(:thread_begin) { begun += 1 }
          trace.enable
          $stdout.puts "=" * 40_000
          trace.disable
          begun
        },
        "/timeout" => -> { begin; Timeout.timeout(0.2) { $stdout.write("y" * 20_000) }; rescue Timeout::Error; "cut short"; end },
        "/flags" => -> { $stdout.fcntl(Fcntl::F_GETFL) & File::NONBLOCK },
        "/child" => -> { system("yes % | head -n 20000") ? "written" : "failed" },
        "/stdin" => -> { [$stdin.gets, $stdin.fcntl(Fcntl::F_GETFL) & File::NONBLOCK] },
        "/popen" => lambda {
          text = "z" * 300_000
          reader, writer = IO.pipe
          child = IO.popen("cat", "w", out: writer)
          writer.close
          task = Async { child.write(text); child.close }
          (reader.read == text).tap { task.wait }
        }
      }.freeze
      run ->(env) { [200, {}, [ANSWERS.fetch(env["PATH_INFO"]).call.to_s]] }
    RUBY

    # Each packet is one write.
    def test_a_line_is_one_write
      ours, theirs = UNIXSocket.pair(:SEQPACKET)
      server = with_server(APP, spawn_options: { out: theirs })
      server.get("/puts")
      packet, = packets(ours, 1) until packet&.start_with?("line") # after the banner

      assert_equal "line\n", packet

      assert_equal ["#{"x" * 200}\n", "ended\n", "a\n", "1\n", "short\n", ":inspected\n"], packets(ours, 6)
      server.get("/encodings")

      assert_equal ["\xff\n".b, "é\n".b], packets(ours, 2)
      assert_equal "wide".encode("UTF-16LE").b, packets(ours, 1).first.byteslice(0, 8)
    ensure
      [ours, theirs].compact.each(&:close)
    end

    def test_what_is_no_string_is_written_as_in_a_thread
      ours, theirs = UNIXSocket.pair
      server = with_server(APP, spawn_options: { out: theirs })

      assert_equal "[9, 6]", server.get("/objects").body
      text = +""
      text << packets(ours, 1).first.to_s until text.end_with?("named")
      assert_equal "a[1, [2]]bnamed", text[-15..]
    ensure
      [ours, theirs].compact.each(&:close)
    end

    def test_a_large_body_after_its_head_is_not_copied
      assert_equal "[60000004, 60000004, true]", with_server(APP).get("/body").body
    end

    # The test shares the file with the server, and looks.
    def test_a_file_is_never_made_non_blocking
      File.open(File::NULL, "w") do |file|
        server = with_server(APP, spawn_options: { out: file })
        writer = Thread.new { 3.times.map { server.get("/lines").body } }
        seen = Set[]
        seen << file.nonblock? while writer.alive?

        assert_equal %w[logged], writer.value.uniq
        assert_equal Set[false], seen
      end
    end

    def test_a_request_that_waits_for_a_slow_reader_leaves_the_file_to_children_as_it_was
      on_a_full_pipe do |server, reader|
        writers = %w[/log /long /log /long].map { |path| Thread.new { server.get(path).body } }
        children = Array.new(2) { Thread.new { server.get("/child").body } }

        5.times { assert_equal "0", server.get("/flags").body } # others are served
        lines = Thread.new { reader.each_line.to_a }

        assert_equal %w[logged] * 4, writers.map(&:value)
        assert_equal %w[written] * 2, children.map(&:value)
        server.finish
        assert_equal 40_000, lines.value.join.count("%")
        assert_equal 2 * 4_000 + 2 * 40_000, lines.value.join.count("=")
      end
    end

    # Thus in the logs of a container.
    def test_a_long_line_takes_no_thread_while_the_pipe_is_empty
      skip "only Linux tells" unless Platform::LINUX
      reader, writer = blocking_pipe
      server = with_server(APP, spawn_options: { out: writer })
      lines = Thread.new { Array.new(2) { reader.gets("=\n") } }

      assert_equal %w[0 0], Array.new(2) { server.get("/threads").body.tap { sleep 0.1 } } # by then it has been read
      assert_equal [40_000] * 2, (lines.value.map { |line| line.count("=") })
    ensure
      [reader, writer].compact.each(&:close)
    end

    def test_a_timeout_ends_a_write_to_a_slow_reader
      on_a_full_pipe do |server, _|
        assert_equal "cut short", server.get("/timeout").body
        assert_equal "0", server.get("/flags").body
      end
    end

    def test_standard_input_is_read_as_it_is
      reader, writer = blocking_pipe
      server = with_server(APP, spawn_options: { in: reader })
      answer = Thread.new { server.get("/stdin").body }

      assert_equal "0", server.get("/flags").body
      writer.puts "typed"

      assert_equal '["typed\n", 0]', answer.value
    ensure
      [reader, writer].compact.each(&:close)
    end

    def test_a_child_that_one_fiber_writes_to_and_another_reads_from
      assert_equal "true", with_server(APP).get("/popen").body
    end

    private

    def packets(socket, count) = Array.new(count) { socket.wait_readable(10)&.recv(65_536) }

    # As a shell makes them.
    def blocking_pipe = IO.pipe.each { |io| io.nonblock = false }

    def on_a_full_pipe
      reader, writer = blocking_pipe
      with_server(APP, spawn_options: { out: writer }) do |server|
        writer.nonblock { nil while writer.write_nonblock("." * 4096, exception: false) != :wait_writable }
        writer.close
        yield server, reader
      end
    ensure
      [reader, writer].compact.each(&:close)
    end
  end
end
