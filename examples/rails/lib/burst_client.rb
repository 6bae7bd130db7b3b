# frozen_string_literal: true

# Sends the same GET request many times at once, each on its own connection, and prints one JSON object a line:
# first {"started": count}, then one for each answer in the order of their ends, then {"finished": seconds}.
#
#   ruby burst_client.rb 127.0.0.1 9292 "/sleep?duration=1" 50
require "json"
require "socket"

module BurstClient
  # Seconds after which what has no answer is given up.
  PATIENCE = 120

  module_function

  def run(host, port, path, count)
    request = "GET #{path} HTTP/1.1\r\nHost: #{host}:#{port}\r\nConnection: close\r\n\r\n"
    sockets = Array.new(count) { TCPSocket.new(host, port) }
    answers = {}
    say started: count
    began = now
    sockets.each_with_index do |socket, index|
      socket.write(request)
      answers[socket] = { index:, began: now, head: +"" }
    end
    receive(answers) until answers.empty? || now - began > PATIENCE
    answers.each_value { |answer| report(answer, "no answer") }
    say finished: now - began
  end

  def receive(answers)
    readable, = IO.select(answers.keys, nil, nil, 1)
    readable&.each do |socket|
      piece = socket.read_nonblock(65_536, exception: false)
      next if piece == :wait_readable

      if piece
        answers[socket][:head] << piece if answers[socket][:head].bytesize < 4_096
      else
        report(answers.delete(socket))
        socket.close
      end
    rescue SystemCallError => error
      report(answers.delete(socket), error.message)
    end
  end

  def report(answer, error = nil)
    head = answer[:head]
    say index: answer[:index], seconds: now - answer[:began], status: head[%r{\AHTTP/1\.\d (\d{3})}, 1].to_i,
      worker: head[/^x-worker-pid: (\d+)/i, 1].to_i, error: error
  end

  def say(fields)
    $stdout.puts JSON.generate(fields.compact)
    $stdout.flush
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

if $PROGRAM_NAME == __FILE__
  host, port, path, count = ARGV
  BurstClient.run(host, port.to_i, path, count.to_i)
end
