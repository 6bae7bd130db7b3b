# frozen_string_literal: true

require "net/http"
require "socket"
require "fileutils"
require "tmpdir"
require_relative "free_port"
require_relative "process_tree"
require_relative "server"
require_relative "tls"

module Bench
  # One server, running: from its start, over the proof that it answers rightly, to its end.
  class ServerProcess
    Failed = Class.new(StandardError)

    BOOT_TIMEOUT = 60
    STOP_TIMEOUT = 10
    UNREACHABLE = [SystemCallError, IOError, Timeout::Error, OpenSSL::SSL::SSLError, Net::HTTPBadResponse].freeze
    private_constant :BOOT_TIMEOUT, :STOP_TIMEOUT, :UNREACHABLE

    attr_reader :port, :processes, :pid

    # Starts the server, yields it once it answers, and ends it.
    def self.run(server, workload, toolchain, ruby_flags: [])
      Dir.mktmpdir("bench") do |folder|
        process = new(server, workload, toolchain, folder, ruby_flags)
        begin
          process.start
          yield process
        ensure
          process.stop
        end
      end
    end

    def initialize(server, workload, toolchain, folder, ruby_flags)
      @server = server
      @workload = workload
      @toolchain = toolchain
      @log = File.join(folder, "log")
      @ruby_flags = ruby_flags
      # A fresh port each time: the last server's closing connections are not in the way.
      @port = FreePort.find
      @site = workload.site(port: @port, backend: FreePort.find, folder:, metrics: (FreePort.find if workload.metrics))
    end

    def workers = @site.workers

    # @return [URI] of the metrics.
    def metrics = @server.metrics(@site)

    def url(path = "/") = "#{@site.url}#{path}"

    # @return [#read_nonblock, #write, #close] a new connection, over TLS where the server speaks it.
    def connect = @site.tls ? TLS.connect(@port) : TCPSocket.new("127.0.0.1", @port)

    # @raise [Failed] when it ends, or does not answer as the workload expects.
    def start
      @site.tls&.prepare
      PublicFiles.prepare if @site.public
      @pid = Process.spawn(
        @toolchain.environment.merge(@workload.environment, @server.environment(@site)),
        *([*@toolchain.ruby, *@ruby_flags] if @server.ruby?), *@server.command(@site),
        chdir: @site.folder, pgroup: true, in: File::NULL, out: @log, err: %i[child out]
      )
      @processes = ProcessTree.new(@pid)
      await_answer
      check
    end

    # Whether it still runs and answers rightly.
    #
    # @raise [Failed]
    def check
      check_running
      answer = get(@workload.check_path)
      return if answer.code == "200" && @workload.expects?(answer.body)

      raise Failed, "answered wrongly: #{answer.code} #{answer.body.to_s[0, 200].inspect}; #{last_words}"
    rescue *UNREACHABLE => error
      raise Failed, "does not answer (#{error.class}: #{error.message}); #{last_words}"
    end

    # Whether it still runs.
    #
    # @raise [Failed]
    def check_running
      raise Failed, "ended: #{last_words}" if ended?
    end

    def stop
      return unless @pid && !ended?

      Process.kill(:TERM, @pid)
      deadline = monotonic + STOP_TIMEOUT
      sleep 0.02 until ended? || monotonic > deadline
    ensure
      kill_group
    end

    def last_words
      "its log ends: #{File.exist?(@log) ? File.read(@log).scrub.lines.last(15).join.strip : "(none)"}"
    end

    private

    def get(path)
      socket = Net::BufferedIO.new(connect, read_timeout: 10)
      socket.write("GET #{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
      Net::HTTPResponse.read_new(socket).tap { |answer| answer.reading_body(socket, true) { answer.body } }
    ensure
      socket&.close
    end

    def await_answer
      deadline = monotonic + BOOT_TIMEOUT
      begin
        raise Failed, "ended while it started: #{last_words}" if ended?

        raise IOError, "a proxy whose server is not there yet" if get(@workload.check_path).code == "502"
      rescue *UNREACHABLE
        raise Failed, "did not answer within #{BOOT_TIMEOUT} s: #{last_words}" if monotonic > deadline

        sleep 0.05
        retry
      end
    end

    def ended?
      @ended ||= !Process.waitpid(@pid, Process::WNOHANG).nil?
    end

    # Its whole group, which is ours alone: a supervisor that was slow must leave no worker behind.
    def kill_group
      Process.kill(:KILL, -@pid) if @pid
    rescue Errno::ESRCH
      nil
    ensure
      Process.waitpid(@pid) if @pid && !ended?
    end

    def monotonic = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
