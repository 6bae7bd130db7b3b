# frozen_string_literal: true

require "socket"

module Bench
  # What a few requests that stall do to others: five of them begin, 0.3 s later fifty come at once that only wait for
  # 0.1 s, and the slowest of these is the figure. The client is a process of its own, before all others where that is
  # allowed: beside servers that compute it would starve, and measure itself.
  #
  # Where the fifty are under way first, those that are suspended on what then stalls cannot but wait for it: `elsewhere`
  # is the slowest of all others. Who is where, each answer says in X-Process and X-Thread.
  class Stall
    BLOCKERS = 5
    SLEEPS = 50
    SLEEP = 0.1
    LEAD = 0.3
    TIMEOUT = 60
    PRIORITY = -10
    # A right answer: after how many seconds, and where it came from.
    Answer = Data.define(:time, :place)
    private_constant :Answer, :BLOCKERS, :SLEEPS, :SLEEP, :LEAD, :TIMEOUT, :PRIORITY

    # @param path [String, nil] of those that stall, like "/free"; nil: none does.
    # @param later [Boolean] whether they wait 10 ms before they stall.
    # @param suspends [String, nil] the others are under way already when the stalls begin, which suspend those in the
    #   same "thread", or in the same "process"; nil: they come later.
    # @param waits [String] what the others ask for, each of which waits.
    # @param stalls [Numeric, nil] seconds that each stall takes; nil: as long as a load is measured.
    # @param again [Boolean] whether it is measured the second time that all this comes to the same server.
    # @param blockers [Integer] how many stall.
    # @param timeout [Numeric] seconds without any answer, after which those that are missing never come.
    def initialize(path = nil, later: false, suspends: nil, waits: "/sleep?#{SLEEP}", stalls: nil, again: false,
      blockers: BLOCKERS, timeout: TIMEOUT)
      @path = path
      @later = later
      @place = /^X-#{suspends}: (\S+)/i if suspends
      @waits = waits
      @stalls = stalls
      @again = again
      @timeout = timeout
      @blockers = path ? blockers : 0
    end

    # @return [Stall] the same with nothing that stalls.
    def control = Stall.new(waits: @waits)

    def name = "stall"

    def connections = SLEEPS + @blockers

    def description
      "#{SLEEPS} × #{@waits} at once, #{@place ? "shortly before" : "beside"} #{@path ? describe_stalls : "nothing"}" \
        "#{", the second time" if @again}"
    end

    def main_figure = :slowest

    # The figure that is to be at most so much in each run.
    def bounded_figure = @place ? :elsewhere : :slowest

    # @return [Numeric] seconds, about.
    def duration(seconds) = (@path ? (@stalls || seconds) + 1 : 1) * (@again ? 2 : 1)

    # @param seconds [Integer] how long each stall takes where nothing else was said.
    # @return [Hash{Symbol => Numeric}] times in milliseconds, of those that sleep.
    def run(server, seconds)
      reading, writing = IO.pipe(binmode: true)
      client = fork do
        reading.close
        prefer
        measure(server.port, @stalls || seconds) if @again
        Marshal.dump(measure(server.port, @stalls || seconds), writing)
        writing.close
        exit!(0)
      end
      writing.close
      Marshal.load(reading.read)
    ensure
      reading&.close
      Process.wait(client) if client
    end

    private

    def describe_stalls
      "#{@blockers} × #{@path}#{" for #{@stalls} s" if @stalls}#{" after a wait of 10 ms" if @later}"
    end

    def prefer
      Process.setpriority(Process::PRIO_PROCESS, 0, PRIORITY)
    rescue Errno::EACCES, Errno::EPERM
      nil
    end

    def measure(port, seconds)
      if @place
        sleeps, started = ask_to_sleep(port)
        sleep SLEEP / 5
        blockers = block(port, seconds)
      else
        blockers = block(port, seconds)
        sleep LEAD
        sleeps, started = ask_to_sleep(port)
      end
      answers, wrong = gather(sleeps, started)
      blocking, = gather(blockers, started)
      figures(answers, blocking, wrong, sleeps.size - answers.size - wrong + blockers.size - blocking.size)
    end

    def figures(answers, blocking, wrong, errors)
      times = answers.map { |answer| answer.time * 1000 }.sort
      {
        requests: SLEEPS, errors:, non_2xx: wrong, slowest: times.last || (@timeout * 1000),
        p50: times[times.size / 2], max: times.last, **(@place ? apart(answers, blocking) : {})
      }.compact
    end

    # Those that were not suspended where something stalled.
    def apart(answers, blocking)
      stalled = blocking.map(&:place)
      others = answers.reject { |answer| stalled.include?(answer.place) }
      { elsewhere: others.map { |answer| answer.time * 1000 }.max, suspended: answers.size - others.size }
    end

    def block(port, seconds)
      Array.new(@blockers) { ask(port, "#{@path}?#{seconds}#{"&later" if @later}") }
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

    # @return [Array(Array<Answer>, Integer)] the right answers, and how many were wrong.
    def gather(sockets, started)
      answers = []
      wrong = 0
      waiting = sockets.to_h { |socket| [socket, +""] }
      until waiting.empty?
        readable, = IO.select(waiting.keys, nil, nil, @timeout)
        break unless readable

        readable.each do |socket|
          next unless ended?(socket, waiting[socket])

          answer = waiting.delete(socket)
          right = answer.start_with?("HTTP/1.1 200")
          right ? answers << Answer.new(monotonic - started, @place && answer[@place, 1]) : wrong += 1
          socket.close
        end
      end
      [answers, wrong]
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
