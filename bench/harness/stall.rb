# frozen_string_literal: true

require "socket"

module Bench
  # What a few requests that stall do to others: five of them begin, 0.3 s later fifty come at once that only wait for
  # 0.1 s, and the slowest of these is the figure. The client is a process of its own, before all others where that is
  # allowed: beside servers that compute it would starve, and measure itself.
  class Stall
    BLOCKERS = 5
    SLEEPS = 50
    SLEEP = 0.1
    LEAD = 0.3
    TIMEOUT = 60
    PRIORITY = -10
    private_constant :BLOCKERS, :SLEEPS, :SLEEP, :LEAD, :TIMEOUT, :PRIORITY

    # @param path [String, nil] of those that stall, like "/free"; nil: none does.
    # @param later [Boolean] whether they wait 10 ms before they stall.
    # @param sleeps_first [Boolean] whether the others are under way already when the stalls begin.
    # @param waits [String] what the others ask for, each of which waits.
    # @param stalls [Numeric, nil] seconds that each stall takes; nil: as long as a load is measured.
    def initialize(path = nil, later: false, sleeps_first: false, waits: "/sleep?#{SLEEP}", stalls: nil)
      @path = path
      @later = later
      @sleeps_first = sleeps_first
      @waits = waits
      @stalls = stalls
    end

    def name = "stall"

    def connections = SLEEPS + (@path ? BLOCKERS : 0)

    def description
      stalls = @path ? "#{BLOCKERS} × #{@path}#{" for #{@stalls} s" if @stalls}#{" after a wait of 10 ms" if @later}" : "nothing"
      "#{SLEEPS} × #{@waits} at once, #{@sleeps_first ? "shortly before" : "beside"} #{stalls}"
    end

    def main_figure = :slowest

    # @return [Numeric] seconds, about.
    def duration(seconds) = @path ? (@stalls || seconds) + 1 : 1

    # @param seconds [Integer] how long each stall takes where nothing else was said.
    # @return [Hash{Symbol => Numeric}] times in milliseconds, of those that sleep.
    def run(server, seconds)
      reading, writing = IO.pipe(binmode: true)
      client = fork do
        reading.close
        prefer
        Marshal.dump(measure(server.port, @stalls || seconds), writing)
        writing.close
        exit!(0)
      end
      writing.close
      Marshal.load(reading.read) # rubocop:disable Security/MarshalLoad
    ensure
      reading&.close
      Process.wait(client) if client
    end

    private

    def prefer
      Process.setpriority(Process::PRIO_PROCESS, 0, PRIORITY)
    rescue Errno::EACCES, Errno::EPERM
      nil
    end

    def measure(port, seconds)
      if @sleeps_first
        sleeps, started = ask_to_sleep(port)
        sleep SLEEP / 5
        blockers = block(port, seconds)
      else
        blockers = block(port, seconds)
        sleep LEAD
        sleeps, started = ask_to_sleep(port)
      end
      times, wrong = gather(sleeps, started)
      _, wrong_blockers = gather(blockers, started)
      figures(times, wrong, sleeps.size - times.size - wrong + wrong_blockers)
    end

    def figures(times, wrong, errors)
      times = times.map { |time| time * 1000 }.sort
      {
        requests: SLEEPS, errors:, non_2xx: wrong, slowest: times.last || (TIMEOUT * 1000),
        p50: times[times.size / 2], max: times.last
      }.compact
    end

    def block(port, seconds)
      return [] unless @path

      Array.new(BLOCKERS) { ask(port, "#{@path}?#{seconds}#{"&later" if @later}") }
    end

    def ask_to_sleep(port)
      started = monotonic
      [Array.new(SLEEPS) { ask(port, @waits) }, started]
    end

    def ask(port, path)
      TCPSocket.new("127.0.0.1", port).tap do |socket|
        socket.write("GET #{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
      end
    end

    # @return [Array(Array<Float>, Integer)] the times of right answers, and how many were wrong.
    def gather(sockets, started)
      times = []
      wrong = 0
      waiting = sockets.to_h { |socket| [socket, +""] }
      until waiting.empty?
        readable, = IO.select(waiting.keys, nil, nil, TIMEOUT)
        break unless readable

        readable.each do |socket|
          next unless ended?(socket, waiting[socket])

          answer = waiting.delete(socket)
          answer.start_with?("HTTP/1.1 200") ? times << (monotonic - started) : wrong += 1
          socket.close
        end
      end
      [times, wrong]
    end

    def ended?(socket, answer)
      piece = socket.read_nonblock(65_536, exception: false)
      return false if piece == :wait_readable

      answer << piece if piece
      piece.nil?
    rescue SystemCallError
      true
    end

    def monotonic = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
