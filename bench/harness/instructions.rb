# frozen_string_literal: true

require "delegate"
require "socket"
require_relative "server_process"
require_relative "statistics"

module Bench
  # How many instructions a server's thread executes for a request, counted by valgrind: no other process can disturb that.
  # Some requests come together on one connection, and again when all are answered: how often a server looks around before
  # it sleeps depends on time, which valgrind distorts, and must not weigh much.
  class Instructions
    # Until Ruby has compiled what is called often.
    WARM_UP = 500
    # Every three thousand requests or so the collector runs, and takes as long as a hundred and fifty: whether once more or
    # once less must not weigh.
    ROUNDS = 1000
    # How often each is counted, in turn: what Ruby compiles differs from start to start, by a percent.
    TIMES = 5
    AT_ONCE = 32
    # Times as many as another state executes are as good as as many.
    MOST = 1.01
    private_constant :WARM_UP, :ROUNDS, :TIMES, :AT_ONCE, :MOST

    # The toolchain's Ruby, counted.
    class Counted < SimpleDelegator
      def initialize(toolchain, files)
        super(toolchain)
        @files = files
      end

      def ruby
        ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no", "--separate-threads=yes", "--fair-sched=yes",
          "--callgrind-out-file=#{@files}.%p", *super]
      end
    end
    private_constant :Counted

    # @param workload [Workload] whose app answers.
    def initialize(workload, toolchain)
      @workload = workload
      @workload.workers = 0 # in the process that was started: valgrind is told there when to count
      @toolchain = toolchain
    end

    # @return [Float] of a request.
    def of(server)
      server.prepare(@toolchain)
      Dir.mktmpdir do |folder|
        files = File.join(folder, "counts")
        pid = ServerProcess.run(server, @workload, Counted.new(@toolchain, files)) do |process|
          ask(process.port, WARM_UP)
          system("callgrind_control", "-i", "on", process.pid.to_s, %i[out err] => File::NULL, exception: true)
          ask(process.port, ROUNDS)
          process.pid
        end
        serving(files, pid).sum { |path| total(path) }.fdiv(ROUNDS * AT_ONCE)
      end
    end

    # @param labels [Array<String>] of servers, of which the first is compared with the others.
    # @return [Array<String>] a line for each, and what is to be said of it.
    def report(labels)
      counts = Array.new(TIMES) { labels.map { |label| of(Server.for(label)) } }.transpose
      medians = counts.map { |all| Statistics.summary(all).median }
      labels.each_with_index.flat_map do |label, i|
        line = "#{@workload.name}, #{AT_ONCE} at once: #{label} #{medians[i].round} instructions a request " \
          "(#{counts[i].minmax.map(&:round).join(" to ")})"
        i.zero? ? line : [line, verdict("#{labels.first} ÷ #{label}", medians.first / medians[i])]
      end
    end

    private

    def verdict(title, ratio) = format("  %s %s: %.4f, at most %.2f", ratio <= MOST ? "✓" : "✗", title, ratio, MOST)

    def ask(port, rounds)
      socket = TCPSocket.new("127.0.0.1", port)
      requests = "GET #{@workload.check_path} HTTP/1.1\r\nHost: localhost\r\n\r\n" * AT_ONCE
      rounds.times do
        socket.write(requests)
        AT_ONCE.times { socket.read(Integer(socket.gets("\r\n\r\n")[/^content-length: *(\d+)/i, 1], 10)) }
      end
    ensure
      socket&.close
    end

    # What is so slow may look like a stall: then another thread than the first serves too.
    def serving(files, pid) = Dir["#{files}.#{pid}-*"].select { |path| File.read(path).include?("fl_loop_take") }

    def total(path)
      Integer(File.foreach(path).grep(/\A(totals|summary): \d+/).last[/\d+/], 10)
    end
  end
end
