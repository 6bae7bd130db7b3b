# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # Uninterruptible sections in requests of a real server.
  class ServerUninterruptibleTest < Test
    APP = <<~RUBY
      require "async"
      require "timeout"
      SEEN = Thread::Queue.new
      STEPS = []
      section = ->(seconds) { Fairlead::Uninterruptible.run { sleep(seconds); STEPS << "finished" } }
      run(lambda do |env|
        case env["PATH_INFO"]
        when "/late"
          Fairlead.request_timeout = 1.5
          begin
            section.(2.5)
            STEPS << "went on"
          rescue Fairlead::RequestTimeout => error
            STEPS << error.class.name
            raise
          ensure
            section.(0.1)
            SEEN << true
          end
        when "/both" # its own timeout, and the request's: the second one has nothing left to end
          Fairlead.request_timeout = 1.5
          begin
            Timeout.timeout(0.1) { section.(2.5) }
          rescue Timeout::Error
            STEPS << "timeout"
          ensure
            SEEN << true
          end
        when "/inner"
          next Fairlead::Uninterruptible.run do
            Timeout.timeout(0.05) { sleep 5 }
          rescue Timeout::Error
            next [200, {}, ["inner"]]
          end
        when "/seen"
          SEEN.pop
          next [200, {}, [STEPS.slice!(0..).join(",")]]
        when "/sleep" then sleep 0.1
        end
        [200, {}, []]
      end)
    RUBY

    def test_a_deadline_waits_for_the_end_of_a_section
      with_server(APP, "--request-timeout", "60", lint: false) do |server|
        assert_equal "504", server.get("/late").code
        assert_equal "finished,Fairlead::RequestTimeout,finished", server.get("/seen").body
      end
    end

    def test_a_deadline_that_was_held_back_reaches_no_later_request
      with_server(APP, "--request-timeout", "60", lint: false) do |server|
        assert_equal "504", server.get("/both").code
        assert_equal "finished,timeout", server.get("/seen").body
        10.times { assert_equal "200", server.get("/sleep").code }
        refute_includes server.log, "RequestTimeout"
      end
    end

    def test_a_timeout_that_begins_within_a_section_ends_its_block
      with_server(APP, lint: false) { |server| assert_equal "inner", server.get("/inner").body }
    end

    def test_the_end_of_the_server_lets_sections_finish
      with_server(<<~RUBY, lint: false) do |server|
        run(lambda do |env|
          Fairlead::Uninterruptible.run { puts "begun"; $stdout.flush; 5.times { sleep 0.05 }; puts "finished" }
          puts "went on"
          [200, {}, []]
        ensure
          Fairlead::Uninterruptible.run { 2.times { sleep 0.05 }; puts "cleaned up"; $stdout.flush }
        end)
      RUBY
        thread = Thread.new { server.get("/") rescue nil }
        eventually("the request") { server.log.include?("begun") }
        server.signal(:TERM)
        server.wait_for_notification("STOPPING=1")
        server.signal(:TERM)
        server.wait_for_end
        thread.join
        assert_match(/begun\nfinished\n.*cleaned up/m, server.log)
        refute_includes server.log, "went on"
      end
    end
  end
end
