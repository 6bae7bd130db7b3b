# frozen_string_literal: true

# Asks for pages at a steady rate. After three seconds it also opens event streams, and ends ten seconds after the last
# of them has begun. Prints a JSON object a line: how both fare, each second, then the summary.
#
#   ruby stream_load.rb 127.0.0.1 9292 1000 10
require "json"
require "socket"

class StreamLoad
  # Pages a second, from so many threads.
  RATE = 100
  THREADS = 20
  # Seconds of pages without streams.
  ALONE = 3
  # Seconds after which it ends, even if some streams have not begun.
  LONGEST = 40
  # Seconds between two lines.
  WINDOW = 1
  # Seconds between two looks at the streams; each opens at most so many.
  PAUSE = 0.01
  OPENED_AT_ONCE = 3

  def initialize(host, port, streams, seconds)
    @host = host
    @port = port
    @count = streams
    @seconds = seconds
    @sockets = []
    @begun = {}.compare_by_identity
    @beside = nil
    @reopened = 0
  end

  def run
    Process.setrlimit(:NOFILE, Process.getrlimit(:NOFILE).last)
    @started = now
    @window = fresh
    @alone = fresh
    @finish = @started + LONGEST
    pages = Array.new(THREADS) { |index| Thread.new { ask(index) } }
    until over?
      open_streams if elapsed >= ALONE
      read_streams
      report if now - @window[:since] >= WINDOW
      sleep PAUSE
    end
    pages.each(&:join)
    say finished: elapsed, streams: @begun.size, reopened: @reopened, alone: figures(@alone), beside: @beside && figures(@beside)
  end

  private

  # Latency counts from the moment at which a page is due, so that a late answer does not hide those that wait behind it.
  def ask(index)
    index.step(by: THREADS) do |number|
      due = @started + number.fdiv(RATE)
      break if due >= @finish

      pause = due - now
      sleep pause if pause.positive?
      good = page
      note(now - due, good)
    end
  end

  # @return [Boolean] whether it came.
  def page
    TCPSocket.open(@host, @port) do |socket|
      socket.write("GET /find HTTP/1.1\r\nHost: #{@host}:#{@port}\r\nConnection: close\r\n\r\n")
      socket.read.start_with?("HTTP/1.1 200")
    end
  rescue SystemCallError
    false
  end

  def note(latency, good)
    parts.each do |part|
      good ? part[:latencies] << latency : part[:failed] += 1
    end
  end

  # While the streams open, pages count for the window only.
  def parts = [@window, elapsed < ALONE ? @alone : @beside].compact

  # Also those again that the server has rejected or ended.
  def open_streams
    [@count - @sockets.size, OPENED_AT_ONCE].min.times { @sockets << open_stream }
  end

  def open_stream
    TCPSocket.new(@host, @port).tap { |socket| socket.write("GET /answer HTTP/1.1\r\nHost: #{@host}:#{@port}\r\n\r\n") }
  end

  def read_streams
    readable, = IO.select(@sockets, nil, nil, 0)
    readable&.each do |socket|
      receive(socket, socket.read_nonblock(65_536))
    rescue SystemCallError, EOFError
      close(socket)
    end
  end

  def receive(socket, piece)
    return close(socket) if piece.start_with?("HTTP/1.1 503")

    tokens = piece.scan("data: ").size
    @begun[socket] = true if tokens.positive?
    parts.each { |part| part[:tokens] += tokens }
    measure if !@beside && @begun.size == @count
  end

  # All streams have begun.
  def measure
    @beside = fresh
    @finish = now + @seconds
  end

  def close(socket)
    socket.close
    @sockets.delete(socket)
    @begun.delete(socket)
    @reopened += 1
  end

  def report
    window = @window
    @window = fresh
    say at: elapsed, streams: @begun.size, **figures(window)
  end

  def fresh = { since: now, latencies: [], tokens: 0, failed: 0 }

  def figures(part)
    sorted = part[:latencies].sort
    { pages: sorted.size, failed: part[:failed], p50: quantile(sorted, 0.5), p99: quantile(sorted, 0.99),
      tokens_per_second: part[:tokens] / (now - part[:since]) }
  end

  # @return [Float, nil] seconds.
  def quantile(sorted, share) = sorted[[(sorted.size * share).ceil - 1, 0].max]

  def say(fields)
    $stdout.puts JSON.generate(fields)
    $stdout.flush
  end

  def over? = now >= @finish

  def elapsed = now - @started

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

if $PROGRAM_NAME == __FILE__
  host, port, streams, seconds = ARGV
  StreamLoad.new(host, port.to_i, streams.to_i, seconds.to_f).run
end
