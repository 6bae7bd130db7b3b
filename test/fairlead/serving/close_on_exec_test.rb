# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # A program that an app starts, at whatever moment, has no client's socket: a client would wait for its end.
  class CloseOnExecTest < Test
    # Each worker starts programs all the time, which tell what sockets they have.
    APP = <<~'RUBY'
      # What the process of the tests leaves open for programs: drivers of other tests do not close their sockets.
      INHERITED = File.readlines("of-the-tests", chomp: true)
      START_PROGRAMS = lambda do
        loop do
          pid = Process.spawn("sleep", "0.02", in: :close, err: File::NULL, out: File::NULL)
          files = Dir.children("/proc/#{pid}/fd").map { |name| File.readlink("/proc/#{pid}/fd/#{name}") rescue "" }
          next unless File.read("/proc/#{pid}/comm").strip == "sleep" # it was still about to become that

          files.grep(/\A(socket|anon_inode):/).difference(INHERITED).each { |file| File.write("inherited", "#{file}\n", mode: "a") }
          File.write("started", "x", mode: "a")
        rescue Errno::ENOENT, Errno::ESRCH, Errno::EACCES
          nil # it has just ended
        ensure
          Process.detach(pid)
        end
      end
      run lambda { |env|
        $starting ||= Thread.new(&START_PROGRAMS)
        [200, {}, ["ok"]]
      }
    RUBY
    SECONDS = 8

    def test_programs_inherit_no_socket
      # A process of root's is forked otherwise, with the loop's lock held.
      server = with_server(APP, "--workers", "2", "--queue-target", "0", lint: false, prefix: ServerProcess::UNPRIVILEGED,
                                files: { "of-the-tests" => opened("self").join("\n") })
      ends = monotonic + SECONDS
      Array.new(4) { Thread.new { connect_anew(server) while monotonic < ends || started(server) <= 50 } }.each(&:join)

      assert_equal [], File.exist?(server.path("inherited")) ? File.readlines(server.path("inherited")) : []
    end

    private

    def started(server) = File.size?(server.path("started")).to_i

    # So many at once that workers hand some of them over.
    def connect_anew(server)
      sockets = Array.new(20) { server.connect }
      sockets.each { |socket| socket.write("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") }
      sockets.each { |socket| assert_match(/ok\z/, socket.read) }
    ensure
      sockets&.each(&:close)
    end
  end
end
