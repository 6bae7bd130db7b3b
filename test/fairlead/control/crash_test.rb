# frozen_string_literal: true

require "open3"
require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # What the log and `fairlead report` say of a worker that dies of a signal.
  class CrashTest < Test
    include SpeaksHTTP

    SECRET = "s3cr3t-0123456789"
    APP = <<~'RUBY'
      require "fiddle"

      run lambda { |env|
        case env["PATH_INFO"]
        when "/crash" then Fiddle::Pointer.new(1)[0, 1] # an address that is no one's
        when "/abort" then Fiddle::Function.new(Fiddle.dlopen(nil)["abort"], [], Fiddle::TYPE_VOID).call
        when %r{\A/wait}
          File.write(env["PATH_INFO"].delete("/"), Process.pid.to_s)
          sleep 600
        end
        [200, {}, [Process.pid.to_s]]
      }
    RUBY

    def test_a_crash_in_c_is_reported_with_what_was_in_flight_and_without_secrets
      server = serve
      pid = wait_in_flight(server, "/wait/1")
      send_to(server, pid, "/crash?token=#{SECRET}")
      log = log_of(server, pid)

      assert_match(/\[BUG\] Segmentation fault/, log)
      assert_match(/^-- C level backtrace/, log)
      assert_match(/^\[\d+\] fairlead: Worker \d \(process #{pid}\) ended unexpectedly\. It was ended by SIGSEGV\.$/, log)
      assert_match(/^2 requests were in flight.*:\n  GET \/crash, in flight for \d\.\d{3} s\n  GET \/wait\/1, in flight for \d+\.\d{3} s$/, log)
      refute_includes log, SECRET
      assert_goes_on(server, without: pid)
      report = report(server)

      assert_match(/^## Last crash\n\n.* UTC: Worker \d \(process #{pid}\) was ended by SIGSEGV\.$/, report)
      assert_includes report, "\n  GET /crash, in flight for "
      refute_includes report, SECRET
    end

    def test_abort_prints_the_c_backtrace_and_the_system_learns_of_the_signal
      server = serve
      pid = wait_in_flight(server, "/wait/1")
      send_to(server, pid, "/abort?token=#{SECRET}")
      log = log_of(server, pid)

      assert_match(/^\[#{pid}\] fairlead: SIGABRT\. C backtrace:\n(.*\n)*.*abort/, log)
      assert_match(/process #{pid}\) ended unexpectedly\. It was ended by SIGABRT\.$/, log)
      assert_match(/^  GET \/abort, in flight for /, log)
      refute_includes log, SECRET
      assert_goes_on(server, without: pid)
    end

    # As the kernel does when memory runs out: nothing of the worker can say anything.
    def test_a_worker_that_is_killed_leaves_behind_what_was_in_flight
      server = serve
      pid = wait_in_flight(server, "/wait/1")
      wait_in_flight(server, "/wait/2", pid)
      server.signal(:KILL, pid)
      log = log_of(server, pid)

      assert_match(/ended by SIGKILL\.\nFairlead did not send it: the kernel does when memory runs out/, log)
      assert_match(/^2 requests were in flight, first the one that ran last:\n  GET \/wait\/2, .*\n  GET \/wait\/1, /, log)
      refute_includes log, SECRET
      assert_goes_on(server, without: pid)
    end

    def test_a_signal_from_outside_while_nothing_runs
      server = serve
      pid = server.worker_pids.first
      server.signal(:SEGV, pid)
      log = log_of(server, pid)

      assert_match(/\[BUG\] Segmentation fault/, log)
      assert_match(/process #{pid}\) ended unexpectedly\. It was ended by SIGSEGV\.\n.*\nNo request was in flight\.$/, log)
    end

    def test_a_request_that_has_been_answered_is_not_in_flight
      server = serve
      pid = wait_in_flight(server, "/wait/1")
      20.times { server.get("/done") }
      server.signal(:KILL, pid)

      assert_match(/^1 request was in flight.*:\n  GET \/wait\/1, /, log_of(server, pid))
    end

    def test_no_worker_ends_in_silence_because_it_drained
      server = serve
      pid = wait_in_flight(server, "/wait/1")
      server.restart
      server.signal(:SEGV, pid)

      assert_match(/^  GET \/wait\/1, in flight/, log_of(server, pid))
    end

    def test_few_of_many_are_listed
      requests = Array.new(30) { |n| { method: "GET", path: "/#{n}", age: n / 10.0, switched: 1.0 / (n + 1) } }
      crash = Crash.of(WorkerTable::Worker.new(index: 1, pid: 2), `kill -ABRT $$; true`.then { $? }, requests)

      assert_equal "  GET /29, in flight for 2.900 s", crash.details.lines[2].chomp
      assert_equal "  and 10 more, in flight", crash.details.lines.last.chomp
    end

    private

    # One worker: of two, the other one may be handed what was sent to a worker that a busy machine keeps waiting.
    def serve = with_server(APP, "-w", "1", "--log", "server.log", env: { "SECRET_OF_THE_TEST" => SECRET }, lint: false)

    # Has a request run and wait in a worker.
    #
    # @return [Integer] the worker.
    def wait_in_flight(server, path, pid = server.worker_pids.first)
      send_to(server, pid, path)
      eventually("#{path} waits in #{pid}") { File.exist?(server.path(path.delete("/"))) && File.read(server.path(path.delete("/"))) == pid.to_s }
      pid
    end

    def send_to(server, pid, path)
      connection_of(server, pid).write("GET #{path}?token=#{SECRET} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer #{SECRET}\r\n\r\n")
    end

    def connection_of(server, pid)
      eventually("#{pid} answers") do
        client = client(to: server)
        client if client.get("/").body == pid.to_s
      end
    end

    def log_of(server, pid)
      path = server.path("server.log")
      eventually("the end of #{pid} is logged") { File.read(path).match?(/process #{pid}\) ended unexpectedly.*in flight/m) }
      File.read(path)
    end

    def assert_goes_on(server, without:)
      eventually("its successor serves") { server.worker_pids.size == 1 && server.worker_pids != [without] }
      assert_equal server.worker_pids.first.to_s, server.get("/").body
    end

    def report(server)
      output, errors, status = Open3.capture3(ServerProcess::CLEAN.merge("SECRET_OF_THE_TEST" => SECRET), RbConfig.ruby, "-I", File.join(ROOT, "lib"),
                                              File.join(ROOT, "exe/fairlead"), "report", "--no-app", chdir: server.directory)
      assert_predicate status, :success?, errors
      output
    end
  end
end
