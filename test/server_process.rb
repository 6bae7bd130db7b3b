# frozen_string_literal: true

require "fileutils"
require "net/http"
require "rbconfig"
require "socket"
require "tmpdir"

# Of itself, a client of Net::HTTP asks again when an answer is lost or late, and the test would not notice.
Net::HTTP.prepend(Module.new { def initialize(...) = super.tap { self.max_retries = 0 } })

module Fairlead
  # A real server under test: `exe/fairlead` in a process of its own, in a folder of its own. It tells that it
  # is ready in the way it tells systemd, over NOTIFY_SOCKET. It ends, and its folder goes, with {#finish},
  # which ends no process but its own children.
  #
  #   with_server("run ->(env) { [200, {}, [\"hello\"]] }", "--workers", "2") do |server|
  #     server.get("/").body            # => "hello"
  #     server.connect { |socket| socket.write("GET / HTTP/1.1\r\n\r\n"); socket.read }
  #     server.pid                      # => 4711
  #     server.worker_pids              # => [4712, 4713]
  #     server.signal(:HUP)
  #     server.log                      # => what it wrote to stdout and stderr
  #   end
  class ServerProcess
    ROOT = File.expand_path("..", __dir__)
    LIBRARY = [File.join(ROOT, "lib"), *ENV["FAIRLEAD_STUB"]].freeze

    # Seconds that a start may take: a slow machine needs minutes for Rails.
    START = 240
    private_constant :START

    # What outside settings must not leak into a server under test.
    CLEAN = %w[PORT PIDFILE WEB_CONCURRENCY RACK_ENV RAILS_ENV LISTEN_FDS LISTEN_PID LISTEN_FDNAMES NOTIFY_SOCKET
               FAIRLEAD_BIND FAIRLEAD_WORKERS].to_h { |name| [name, nil] }.freeze

    # Otherwise each server would start itself anew, which takes a third of a second.
    STACKS = FiberStacks.variables.freeze

    # A prefix: the server is not root's then, and may still read and write all files, wherever the checkout is. Ruby starts programs
    # by vfork in such a process.
    UNPRIVILEGED = if Process.uid.zero?
                     %w[setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all,+dac_override --ambient-caps=-all,+dac_override
                        env HOME=/tmp].freeze
                   else
                     [].freeze
                   end

    # @return [String] the folder the server runs in.
    attr_reader :directory
    # @return [Integer] the process that was started, by which the server is known.
    attr_reader :pid
    # @return [Process::Status, nil] how it ended; nil while it runs.
    attr_reader :status

    # @param spawn_options [Hash] further options of Process.spawn.
    # @param ruby_flags [Array<String>] flags of the ruby that runs it, like "--yjit".
    # @param prefix [Array<String>] a command that becomes the server, like ["setsid", "--ctty"].
    # @param timeout [Numeric] seconds that an answer or an end may take.
    def initialize(app, *flags, env: {}, files: {}, lint: true, timeout: 60, ruby_flags: [], spawn_options: {},
                   prefix: [])
      @flags = flags
      @env = env
      @timeout = timeout
      @ruby_flags = ruby_flags
      @spawn_options = spawn_options
      @prefix = prefix
      @directory = File.realpath(Dir.mktmpdir("fairlead-"))
      write("config.ru", lint ? "require \"rack/lint\"\nuse Rack::Lint\n#{app}" : app) if app
      files.each { |path, text| write(path, text) }
    end

    # Writes a file into the server's folder.
    def write(path, text)
      path = File.join(@directory, path)
      FileUtils.mkdir_p(File.dirname(path))
      File.write(path, text)
      path
    end

    def path(name) = File.join(@directory, name)

    # May be called again once it has ended.
    def start
      @status = nil
      FileUtils.rm_f(path("notify.sock"))
      @notifications = Socket.new(:UNIX, :DGRAM)
      @notifications.bind(Socket.sockaddr_un(path("notify.sock")))
      @seen = []
      @log = File.open(path("output.log"), "a")
      @pid = Process.spawn(
        { **CLEAN, **STACKS, "NOTIFY_SOCKET" => path("notify.sock"), **@env }, *@prefix, *command, *flags,
        chdir: @directory, in: File::NULL, out: @log, err: @log, **@spawn_options
      )
      self
    end

    # @raise [RuntimeError] with the log, if it ends or takes too long instead.
    def wait_until_ready
      wait_for_notification("READY=1")
      self
    end

    # Waits for a message that the server sends to its service manager, like "READY=1" or "STOPPING=1". Each is
    # waited for once.
    #
    # @return [String] the whole message, all its lines.
    def wait_for_notification(line, within: line == "READY=1" ? [@timeout, START].max : @timeout)
      deadline = now + within
      loop do
        found = @seen.index { |message| message.lines(chomp: true).include?(line) }
        return @seen.slice!(0..found).last if found

        next receive_notification if @notifications.wait_readable(0.05)
        raise "The server ended (#{status}) before it sent #{line}:\n#{end_of_log}" if ended?
        raise "The server did not send #{line} within #{within} s:\n#{end_of_log}" if now > deadline
      end
    end

    # @return [Array<String>] the addresses it serves, as URIs.
    def addresses
      @addresses or raise "The server has not told its addresses:\n#{end_of_log}"
    end

    # @return [String] the first address it serves, like "http://127.0.0.1:40123".
    def address = addresses.first

    def port = URI(address).port

    # @return [Net::HTTPResponse]
    def get(path = "/", headers = {})
      Net::HTTP.start("127.0.0.1", port, read_timeout: @timeout) { |http| http.get(path, headers) }
    end

    # Asks while new code takes the place of the old in one process: a connection on which nothing has come for a second is closed then,
    # and the client asks again (RFC 9112, 9.3.1). None is refused.
    #
    # @return [Net::HTTPResponse]
    def get_meanwhile
      get
    rescue EOFError, Errno::ECONNRESET, Errno::EPIPE
      retry
    end

    # @return [Net::HTTPResponse]
    def post(path, body, headers = {})
      Net::HTTP.start("127.0.0.1", port, read_timeout: @timeout) { |http| http.post(path, body, headers) }
    end

    # Opens a connection: to the first address, or to the Unix socket of that path.
    #
    # @yield [Socket] closed afterwards; without a block it is returned, and the caller closes it.
    def connect(unix: nil)
      socket = unix ? UNIXSocket.new(unix) : TCPSocket.new("127.0.0.1", port)
      return socket unless block_given?

      begin
        yield socket
      ensure
        socket.close
      end
    end

    # Sends bytes over a new connection, and reads until the server closes it.
    def exchange(bytes)
      connect do |socket|
        socket.write(bytes)
        socket.read
      end
    end

    # @return [Array<Integer>] the running workers, and what else supervisors start; without those that have ended and are
    #   not reaped yet.
    def worker_pids = supervisor_pids.flat_map { |pid| children(pid) }.select { |pid| alive?(pid) }

    # @return [Integer] of the newest supervisor; the first process, if that is none itself.
    def supervisor_pid = supervisor_pids.last

    # @return [Array<Integer>]
    def supervisor_pids
      return [@pid] unless title(@pid).start_with?("fairlead: init")

      children(@pid).select { |pid| alive?(pid) }
    end

    # @return [Array<Integer>] all processes of the server but the first.
    def descendant_pids(pid = @pid)
      children(pid).select { |child| alive?(child) }.flat_map { |child| [child, *descendant_pids(child)] }
    end

    # @return [String] the title of a process, as ps shows it; empty when it has ended.
    def title(pid)
      File.read("/proc/#{pid}/cmdline").tr("\0", " ").strip
    rescue Errno::ENOENT, Errno::ESRCH
      ""
    end

    # Sends a signal.
    def signal(name, pid = @pid) = Process.kill(name, pid)

    # Sends a signal that restarts something, and waits until it is done.
    def restart(name = :HUP)
      signal(name)
      wait_for_notification("RELOADING=1")
      wait_for_notification("READY=1")
    end

    # Sends TERM, and waits for the end.
    #
    # @return [Process::Status]
    def stop(signal = :TERM)
      signal(signal) unless ended?
      wait_for_end
    end

    # @return [Process::Status]
    # @raise [RuntimeError] with the log, if it does not end in time.
    def wait_for_end(within: @timeout)
      deadline = now + within
      until ended?
        raise "The server did not end within #{within} s:\n#{end_of_log}" if now > deadline

        sleep 0.005
      end
      status
    end

    def ended?
      return true if @status

      _, @status = Process.wait2(@pid, Process::WNOHANG)
      @status ? true : false
    end

    def alive?(pid)
      File.read("/proc/#{pid}/stat")[/\) (.)/, 1] != "Z"
    rescue Errno::ENOENT, Errno::ESRCH
      false
    end

    # @return [String] what it wrote to stdout and stderr.
    def log
      File.exist?(path("output.log")) ? File.read(path("output.log")) : ""
    end

    # @return [String, nil] what Ruby says of a process that crashed: its workers are replaced, and a test may not notice.
    def crash = @finished ? @crash : crash_in_log

    # @return [String] as much of it as a failure should tell.
    def end_of_log = log.then { |text| text.size > 4_000 ? "… #{text[-4_000..]}" : text }

    # @return [String, nil] what helps to understand the failure of a test: what it has logged, which requests run in it, and what they
    #   wait for. Nothing of a server that ended well.
    def account = @finished ? @account : remember

    # Keeps its account of now.
    def remember
      running, workers = %w[slow status].map { |command| ask(command) } if @pid && !ended?
      @account = "The server's log:\n#{end_of_log}\n#{running}\n#{workers}"
    end

    # Ends the server and its workers, whatever state they are in, and removes its folder.
    def finish
      return if @finished

      @finished = true
      end_processes if @pid
      @crash = crash_in_log
      @notifications&.close
      @log&.close
      FileUtils.remove_entry(@directory)
    end

    private

    def ask(command)
      asked = [RbConfig.ruby, "-I", LIBRARY.first, File.join(ROOT, "exe/fairlead"), command, "--pid", pid.to_s]
      IO.popen(CLEAN, ["timeout", "10", *asked], err: %i[child out], &:read)
    end

    def crash_in_log = log.b.slice(/^[^\n]*\[BUG\].*/mn)&.slice(0, 4_000)

    def command
      [RbConfig.ruby, *@ruby_flags, *LIBRARY.flat_map { |folder| ["-I", folder] }, File.join(ROOT, "exe/fairlead")]
    end

    # The defaults come first: a later flag wins.
    def flags
      bound = given?(/\A(-b|--bind|-p|--port)/)
      configured = given?(/\A(-C|--config)/) || File.exist?(path("config/fairlead.rb"))
      defaults = []
      defaults.push("--workers", "1") unless given?(/\A(-w|--workers)/) || configured
      defaults.push("--bind", "http://127.0.0.1:0") unless bound || configured
      defaults + @flags
    end

    def given?(pattern) = @flags.any?(pattern)

    def receive_notification
      message = @notifications.recv(65_536)
      status = message[/^STATUS=serving (.*)$/, 1]
      @addresses = status.split if status
      @seen << message
    end

    def end_processes
      workers = descendant_pids
      unless ends_at_once?
        signal(:KILL)
        wait_for_end
      end
      # The workers of a supervisor that was killed: they end by themselves, and must not outlive their test.
      workers.each { |pid| Process.kill(:KILL, pid) if alive?(pid) && ours?(pid) }
    end

    # Told a few times: two signals that come before the process runs are one to it, which lets what runs finish.
    def ends_at_once?
      1000.times.any? do |count|
        signal(:TERM) if !ended? && (count % 10).zero? && count < 50
        ended? || (sleep(0.005) && false)
      end
    end

    # A pid may have been given to another process since.
    def ours?(pid)
      File.readlink("/proc/#{pid}/cwd") == @directory
    rescue SystemCallError
      false
    end

    def children(pid)
      File.read("/proc/#{pid}/task/#{pid}/children").split.map(&:to_i)
    rescue Errno::ENOENT
      []
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
