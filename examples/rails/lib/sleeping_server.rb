# frozen_string_literal: true

require "socket"

# The "remote" of remote_io: a small HTTP server that answers GET /?seconds=1.5 after that time. It is a process
# of its own, so that it is as far away as a server on this machine can be.
module SleepingServer
  VARIABLE = "SLEEPING_SERVER"

  class << self
    # Starts it, unless SLEEPING_SERVER names one already. It ends with the last process that has the pipe.
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

    def uri(seconds)
      URI("#{ENV.fetch(VARIABLE)}/?seconds=#{seconds}")
    end

    # The server itself: a thread for each connection is good enough here.
    def serve(listener, alive)
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
      seconds = client.gets.to_s[/[?&]seconds=(\d+(\.\d+)?)/, 1].to_f
      nil until ["\r\n", nil].include?(client.gets)
      sleep seconds.clamp(0, 10)
      body = "Slept #{seconds} s.\n"
      client.write "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: #{body.bytesize}\r\n" \
                   "connection: close\r\n\r\n#{body}"
    rescue SystemCallError, IOError
      # The caller has gone.
    ensure
      client.close
    end
  end
end

if $PROGRAM_NAME == __FILE__
  trap(:INT, "IGNORE") # Control-C in the terminal: the demo drains, and we are needed until it ends.
  listener, alive = ARGV.map { |descriptor| Integer(descriptor) }
  SleepingServer.serve(TCPServer.for_fd(listener), IO.for_fd(alive))
end
