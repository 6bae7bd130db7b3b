# frozen_string_literal: true

# A small server that a request can wait for: it answers each after as many seconds as its path says. It prints its
# port, and ends with the process that started it.

require "socket"

server = TCPServer.new("127.0.0.1", 0)
server.listen(1024)
puts server.local_address.ip_port
$stdout.flush
Thread.new { sleep 0.5 until Process.ppid == 1; exit!(0) }

loop do
  Thread.new(server.accept) do |socket|
    seconds = socket.gets[%r{/([\d.]+)}, 1].to_f
    nil until ["\r\n", nil].include?(socket.gets)
    sleep seconds
    socket.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nslept")
    socket.close
  end
end
