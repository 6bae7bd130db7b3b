# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  class BootThreadsTest < Test
    APP = <<~'RUBY'
      require "timeout"
      Timeout.timeout(10) { Thread.pass }
      Thread.new { Thread.current.name = "metronome"; sleep }
      Thread.new { sleep }.thread_variable_set(:fork_safe, true)
      Thread.pass until Thread.list.any? { |thread| thread.name == "metronome" }
      run ->(env) { [200, {}, [Thread.list.count { |thread| thread.name == "metronome" }.to_s]] }
    RUBY
    WARNING = /The app has started .+ while it was loaded/
    private_constant :WARNING

    def test_the_log_names_the_threads_that_the_workers_lack_once_a_start
      server = with_server(APP, "-w", "2", lint: false)

      assert_equal "0", server.get.body
      assert_equal ["The app has started a thread while it was loaded"], server.log.scan(WARNING)
      assert_match(/^  #<Thread:\S+@metronome config\.ru:3 sleep.*>, now at .*config\.ru:3:in /, server.log.gsub("#{server.directory}/", ""))
      assert_includes server.log, "Start such threads in the hook after_fork"
      Process.kill(:USR2, server.pid)
      eventually("the warning of the restart") { server.log.scan(WARNING).size == 2 }
    end

    def test_without_preload_workers_have_their_own_threads
      [["--no-preload"], ["-w", "0"]].each do |flags|
        with_server(APP, *flags, lint: false) do |server|
          assert_equal "1", server.get.body
          refute_match WARNING, server.log
        end
      end
    end
  end
end
