# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # As process 1 of a container: a process namespace of its own has all that matters here.
  class ContainerTest < Test
    NAMESPACE = %w[unshare --pid --fork --mount-proc].freeze
    APP = <<~'RUBY'
      run lambda { |env|
        text = case env["PATH_INFO"]
               when "/orphan" then `sh -c 'sleep 0.1 >/dev/null & echo $!'`.strip
               when "/there" then File.exist?("/proc/#{env["QUERY_STRING"]}").to_s
               when "/slow" then File.write("began", "") && sleep(0.5) && "slow"
               else "#{Process.pid} #{Process.ppid}"
               end
        [200, { "content-type" => "text/plain" }, [text]]
      }
    RUBY

    def setup
      super
      skip "this user may not have a process namespace" unless system(*NAMESPACE, "true", err: File::NULL)
    end

    def test_it_serves_and_its_app_is_not_process_1
      contained do |server, init|
        assert_match(/\A\d+ (?!1\z)\d+\z/, server.get.body)
        assert_match(/^fairlead: init /, server.title(init))
        assert_match(/^  process    1: /, server.log)
      end
    end

    def test_it_reaps_what_has_lost_its_parent
      contained do |server, _|
        orphans = Array.new(5) { server.get("/orphan").body }

        orphans.each { |pid| eventually("the end of #{pid}") { server.get("/there?#{pid}").body == "false" } }
      end
    end

    def test_it_passes_signals_on_and_ends_with_status_0
      contained do |server, init|
        first = server.get.body
        server.signal(:HUP, init)
        server.wait_for_notification("RELOADING=1")
        server.wait_for_notification("READY=1")
        eventually("another worker") { server.get.body != first }
        slow = Thread.new { server.get("/slow").body }
        eventually("it runs") { File.exist?(server.path("began")) }
        server.signal(:TERM, init)

        assert_equal "slow", slow.value
        assert_predicate server.wait_for_end, :success?
      end
    end

    def test_new_code_is_started_as_anywhere
      contained do |server, init|
        server.write("config.ru", "run ->(env) { [200, {}, [\"new\"]] }")
        server.signal(:USR2, init)
        server.wait_for_notification("RELOADING=1")
        server.wait_for_notification("READY=1")

        eventually("the new code") { server.get.body == "new" }
      end
    end

    def test_it_ends_with_the_status_of_its_server
      contained do |server, _|
        server.signal(:KILL, server.descendant_pids[1])

        assert_equal 128 + 9, server.wait_for_end.exitstatus
      end
    end

    def test_an_app_that_cannot_be_loaded_is_one_message_and_status_1
      server = with_server("run(", prefix: NAMESPACE, ready: false)

      assert_equal 1, server.wait_for_end.exitstatus
      assert_equal 1, server.log.scan(/^fairlead: The app could not be loaded from config\.ru\.$/).size
      refute_match(/continues to serve/, server.log)
    end

    private

    def contained
      with_server(APP, prefix: NAMESPACE) do |server|
        init = server.descendant_pids.first
        yield server, init
      ensure
        Process.kill(:KILL, init) if init && server.alive?(init)
      end
    end
  end
end
