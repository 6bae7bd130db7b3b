# frozen_string_literal: true

require "fileutils"
require_relative "../../helper"

module Fairlead
  # Timeout in requests, as in threads: with the gem's present version, and with the one that Ruby brings.
  class TimeoutsTest < Test
    APP = <<~'RUBY'
      require "timeout"
      require "net/http"
      require "socket"

      SILENT = TCPServer.new("127.0.0.1", 0)
      Thread.new { loop { ($clients ||= []) << SILENT.accept } }
      Mine = Class.new(StandardError)
      INCLUDER = Class.new { include Timeout; def try = timeout(0.1) { begin; sleep 2; rescue => error; "swallowed #{error.class}"; end } }

      # What a thread would say.
      KINDS = {
        "outer Timeout::Error" => [
          -> { Timeout.timeout(0.1) { begin; sleep 2; rescue => error; "swallowed #{error.class}"; end } },
          -> { Timeout.timeout(0.1) { begin; sleep 2; rescue Timeout::Error; "swallowed"; end } },
          -> { INCLUDER.new.try },
          -> { Timeout.timeout(0.1) { Timeout.timeout(5) { sleep 2 } } },
          -> { Timeout.timeout(0.1) { Enumerator.new { |yielder| sleep 2; yielder << 1 }.next } },
          -> { Timeout.timeout(0.1) { Thread::Queue.new.pop } },
          -> { Timeout.timeout(0.1) { Thread.new { sleep 2 }.join } },
          -> { Timeout.timeout(0.1) { system("sleep 2") } },
          -> { Timeout.timeout(0.1) { TCPSocket.new("127.0.0.1", SILENT.addr[1]).read(1) } },
          -> { Timeout.timeout(0.1) { ended = Process.clock_gettime(1) + 0.3; nil until Process.clock_gettime(1) > ended; "late" } },
          -> { Timeout.timeout(0.1) { sleep 0.01; ended = Process.clock_gettime(1) + 0.3; nil until Process.clock_gettime(1) > ended; "late" } },
          -> { Fiber.blocking { Timeout.timeout(0.1) { sleep 2 } } },
          -> { Timeout.timeout(0.1) { mutex = Mutex.new; mutex.synchronize { ConditionVariable.new.wait(mutex) } } },
          -> { Timeout.timeout(0.1) { attempts = 0; begin; attempts += 1; sleep 1; rescue StandardError; retry if attempts < 4; end } },
          -> { http = Net::HTTP.new("127.0.0.1", SILENT.addr[1]); http.read_timeout = 2; Timeout.timeout(0.1) { http.get("/") } },
        ],
        "swallowed Mine" => [
          -> { Timeout.timeout(0.1, Mine) { begin; sleep 2; rescue => error; "swallowed #{error.class}"; end } },
        ],
        "outer Mine: too long" => [-> { Timeout.timeout(0.1, Mine, "too long") { sleep 2 } }],
        "swallowed Timeout::Error" => [
          -> { Timeout.timeout(0.1, Timeout::Error) { begin; sleep 2; rescue => error; "swallowed #{error.class}"; end } },
        ],
        "inner" => [-> { Timeout.timeout(5) { begin; Timeout.timeout(0.1) { sleep 2 }; rescue Timeout::Error; "inner"; end } }],
        "done" => [
          -> { Timeout.timeout(nil) { "done" } }, -> { Timeout.timeout(0) { "done" } }, -> { Timeout.timeout(5) { sleep 0.01; "done" } },
        ],
      }
      answer = lambda do |kind|
        kind.call
      rescue Timeout::Error, Mine => error
        error.message == "execution expired" ? "outer #{error.class}" : "outer #{error.class}: #{error.message}"
      end
      run(lambda do |env|
        next [200, {}, [Timeout::VERSION]] if env["PATH_INFO"] == "/version"

        wrong = KINDS.flat_map do |right, kinds|
          kinds.each_with_index.filter_map { |kind, i| (said = answer.(kind)) == right ? nil : "#{right} #{i}: #{said}" }
        end
        [200, {}, [wrong.join("\n")]]
      end)
    RUBY

    def test_it_is_as_in_threads
      with_server(APP, lint: false) { |server| assert_equal "", server.get("/").body }
    end

    def test_it_is_as_in_threads_with_the_version_of_ruby_itself
      Dir.mktmpdir do |folder|
        FileUtils.cp(File.join(RbConfig::CONFIG["rubylibdir"], "timeout.rb"), folder)
        with_server(APP, lint: false, ruby_flags: ["-I", folder]) do |server|
          assert_equal File.read(File.join(folder, "timeout.rb"))[/VERSION = "(.*)"/, 1], server.get("/version").body
          assert_equal "", server.get("/").body
        end
      end
    end
  end
end
