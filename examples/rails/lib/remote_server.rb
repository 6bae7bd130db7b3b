# frozen_string_literal: true

require "socket"

# The remote services that the demo calls, in a process of their own. GET /sleep?seconds=1.5 answers after that time.
# GET /tokens is a fake language model: it sends two tokens a second, as server-sent events.
module RemoteServer
  VARIABLE = "REMOTE_SERVER"
  TOKENS = 120
  TOKEN_SECONDS = 0.5

  class << self
    # Starts it, unless REMOTE_SERVER names one already. It ends with the last process that has the pipe.
    def start
      return if ENV[VARIABLE].present?

      listener = TCPServer.new("127.0.0.1", 0)
      alive, @keep = IO.pipe
      # Through a shell that ends at once: the server's supervisor has no unknown child to wait for.
      Process.wait spawn({ "RUBYOPT" => nil }, "sh", "-c", "exec 1>&2; \"$@\" &", "sh",
        RbConfig.ruby, "--disable-gems", __FILE__, listener.fileno.to_s, alive.fileno.to_s,
        listener => listener, alive => alive)
      ENV[VARIABLE] = "http://127.0.0.1:#{listener.addr[1]}"
      listener.close
      alive.close
    end

    def uri(path)
      URI("#{ENV.fetch(VARIABLE)}#{path}")
    end

    # The server itself: a thread for each connection is good enough here.
    def serve(listener, alive)
      Process.setrlimit(:NOFILE, Process.getrlimit(:NOFILE).last)
      Thread.new do
        alive.read
        exit!
      end
      loop do
        Thread.new(listener.accept) { |client| answer(client) }
      end
    end

    private

    def answer(client)
      path = client.gets.to_s
      nil until ["\r\n", nil].include?(client.gets)
      path.start_with?("GET /tokens") ? send_tokens(client) : sleep_and_answer(client, path)
    rescue SystemCallError, IOError
      # The caller has gone.
    ensure
      client.close
    end

    def sleep_and_answer(client, path)
      seconds = path[/[?&]seconds=(\d+(\.\d+)?)/, 1].to_f
      sleep seconds.clamp(0, 10)
      body = "Slept #{seconds} s.\n"
      client.write "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: #{body.bytesize}\r\n" \
                   "connection: close\r\n\r\n#{body}"
    end

    def send_tokens(client)
      client.write "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
      TOKENS.times do |number|
        client.write %(data: {"choices":[{"delta":{"content":"token #{number} "}}]}\n\n)
        sleep TOKEN_SECONDS
      end
    end
  end
end

if $PROGRAM_NAME == __FILE__
  trap(:INT, "IGNORE") # Control-C in the terminal: the demo drains, and we are needed until it ends.
  listener, alive = ARGV.map { |descriptor| Integer(descriptor) }
  RemoteServer.serve(TCPServer.for_fd(listener), IO.for_fd(alive))
end
