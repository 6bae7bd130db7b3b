# frozen_string_literal: true

require "delegate"
require "socket"
require_relative "server_process"

module Bench
  # How many instructions a server's thread executes for a request, counted by valgrind: no other process can disturb that.
  # The requests come one after the other on one connection, so that each has all that wakes a server up. Two runs are
  # compared which differ in nothing but the number of requests.
  class Instructions
    # Until Ruby has compiled what is called often.
    WARM_UP = 3000
    REQUESTS = 2000
    private_constant :WARM_UP, :REQUESTS

    # The toolchain's Ruby, counted.
    class Counted < SimpleDelegator
      def initialize(toolchain, files)
        super(toolchain)
        @files = files
      end

      def ruby
        ["valgrind", "--quiet", "--tool=callgrind", "--separate-threads=yes", "--fair-sched=yes", "--callgrind-out-file=#{@files}.%p", *super]
      end
    end
    private_constant :Counted

    # @param workload [Workload] whose app answers.
    def initialize(workload, toolchain)
      @workload = workload
      @toolchain = toolchain
    end

    # @return [Float] of a request.
    def of(server)
      server.prepare(@toolchain)
      (count(server, WARM_UP + REQUESTS) - count(server, WARM_UP)).fdiv(REQUESTS)
    end

    # @param labels [Array<String>] of servers, of which the first is compared with the others.
    # @return [Array<String>] a line for each.
    def report(labels)
      counts = labels.to_h { |label| [label, of(Server.for(label))] }
      counts.map do |label, count|
        "#{@workload.name}, one connection: #{label} #{count.round} instructions a request" \
          "#{format(" (%.4f of them with %s)", counts.values.first / count, labels.first) unless label == labels.first}"
      end
    end

    private

    def count(server, requests)
      Dir.mktmpdir do |folder|
        files = File.join(folder, "counts")
        worker = nil
        ServerProcess.run(server, @workload, Counted.new(@toolchain, files)) do |process|
          worker = process.processes.pids.last
          ask(process.port, requests)
        end
        total("#{files}.#{worker}-01") # its first thread is the one that serves
      end
    end

    def ask(port, requests)
      socket = TCPSocket.new("127.0.0.1", port)
      requests.times do
        socket.write("GET #{@workload.check_path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
        length = socket.gets("\r\n\r\n")[/^content-length: *(\d+)/i, 1]
        socket.read(Integer(length, 10))
      end
    ensure
      socket&.close
    end

    def total(path)
      Integer(File.foreach(path).grep(/\A(totals|summary): \d+/).last[/\d+/], 10)
    end
  end
end
