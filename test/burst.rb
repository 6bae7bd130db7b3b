# frozen_string_literal: true

require "socket"

module Fairlead
  # Many requests at once, each on a raw connection of its own: what one process can send before the first answer
  # comes. The connections are open before the clock starts.
  module Burst
    # @!attribute text [String] all that came: head and body.
    # @!attribute seconds [Float] from the moment the first request was sent.
    Answer = Struct.new(:text, :seconds) do
      def status = text[%r{\AHTTP/1\.\d (\d{3})}, 1].to_i

      # Without its chunks: a server that has begun to send before it had all of it sends some.
      def body
        head, rest = text.split("\r\n\r\n", 2)
        return rest unless rest && head.match?(/^transfer-encoding: chunked/i)

        whole = +""
        rest = rest.b
        while (line = rest[/\A\h+\r\n/]) && (size = line.hex).positive?
          whole << rest.byteslice(line.size, size).force_encoding(Encoding::UTF_8)
          rest = rest.byteslice((line.size + size + 2)..).to_s
        end
        whole
      end
    end

    # @param paths [Array<String>] one request for each; it asks to close the connection after it.
    # @param within [Numeric] seconds for all.
    # @return [Array<Answer>] in the order of the paths; the text is what came until then, if one took too long.
    def burst(server, paths, within: 60)
      connecting = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      sockets = paths.map { server.connect }
      answers = sockets.to_h { |socket| [socket, Answer.new(+"", nil)] }
      started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      @seconds_of_connecting = started - connecting
      sockets.zip(paths) { |socket, path| socket.write(request_for(path)) }
      gather(answers, started, within)
      answers.values
    ensure
      sockets&.each(&:close)
    end

    # @return [Float] seconds until the last answer had come. Fails unless each is 200.
    def seconds_of_burst(server, paths, within: 60)
      answers = burst(server, paths, within:)
      wrong = answers.reject { |answer| answer.status == 200 && answer.seconds }
      assert_empty wrong.first(3).map(&:text), "#{wrong.size} of #{answers.size} requests failed.\n#{server.log.lines.last(30).join}"
      answers.map(&:seconds).max
    end

    private

    def request_for(path) = "GET #{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

    def gather(answers, started, within)
      waiting = answers.keys
      until waiting.empty?
        elapsed = Process.clock_gettime(Process::CLOCK_MONOTONIC) - started
        readable, = IO.select(waiting, nil, nil, [within - elapsed, 0].max)
        return unless readable

        now = Process.clock_gettime(Process::CLOCK_MONOTONIC) - started
        readable.each do |socket|
          bytes = socket.read_nonblock(65_536, exception: false)
          next if bytes == :wait_readable

          bytes ? answers[socket].text << bytes : (answers[socket].seconds = now and waiting.delete(socket))
        rescue SystemCallError
          waiting.delete(socket)
        end
      end
    end
  end
end
