# frozen_string_literal: true

require_relative "../../helper"
require "active_support"
require "active_support/isolated_execution_state"
require "active_support/dependencies"
require "i18n"
require "fairlead/integrations/capybara"
require "rack/lint"

module Fairlead
  class CapybaraTest < Test
    needs :browser

    def setup
      super
      Capybara.server = :fairlead
    end

    def teardown
      Capybara.server = :default
      super
    end

    def test_an_app_is_served_in_a_thread_beside_the_test
      app = ->(_) { [200, { "content-type" => "text/plain" }, ["#{Process.pid} #{Thread.current == Thread.main}"]] }
      server = Capybara::Server.new(Rack::Lint.new(app)).boot

      assert_equal "#{Process.pid} false", Net::HTTP.get(URI("#{server.base_url}/"))
    end

    def test_a_request_finds_nothing_of_the_test_in_whose_midst_the_server_began
      available = ::I18n.available_locales
      ::I18n.available_locales = %i[en de]
      Fiber[:fairlead_of_the_test] = 1
      app = ->(_) { [200, { "content-type" => "text/plain" }, ["#{::I18n.locale} #{Fiber[:fairlead_of_the_test].inspect}"]] }
      answers = ::I18n.with_locale(:de) do
        server = Capybara::Server.new(Rack::Lint.new(app)).boot
        Array.new(5) { Thread.new { Net::HTTP.get(URI("#{server.base_url}/")) } }.map(&:value)
      end

      assert_equal ["en nil"] * 5, answers
    ensure
      Fiber[:fairlead_of_the_test] = nil
      ::I18n.available_locales = available
    end

    # As tests are run in several processes. Such a process is a child of one that serves, and serves itself.
    def test_a_process_that_is_forked_beside_a_server_may_serve_and_fork_too
      app = ->(_) { [200, { "content-type" => "text/plain" }, [Process.wait2(Process.fork { exit!(3) })[1].exitstatus.to_s]] }
      parents = Capybara::Server.new(Rack::Lint.new(app)).boot
      reader, writer = IO.pipe
      child = Process.fork do
        own = Capybara::Server.new(->(env) { app.call(env) }).boot
        3.times { writer.write(Net::HTTP.get(URI("#{own.base_url}/"))) }
      ensure
        exit!(0)
      end
      writer.close

      assert_equal "333", reader.read
      Process.wait(child)
      assert_equal "3", Net::HTTP.get(URI("#{parents.base_url}/"))
    end

    def test_options_for_puma_are_ignored
      Capybara.server = :fairlead, { Silent: true, Threads: "0:4", queue_timeout: 7, nonsense: 1 }
      server = nil
      _, said = capture_io do
        server = Capybara::Server.new(Rack::Lint.new(->(_) { [200, { "content-type" => "text/plain" }, ["served"]] })).boot
      end

      assert_equal "served", Net::HTTP.get(URI("#{server.base_url}/"))
      assert_equal 1, said.scan("ignored").size
      assert_includes said, "{ nonsense: … }: there is no such option, and it is ignored."
    end

    def test_the_app_is_isolated_by_fiber
      app = lambda do |env|
        ::ActiveSupport::IsolatedExecutionState[:number] = env["QUERY_STRING"]
        sleep 0.05
        [200, { "content-type" => "text/plain" }, [::ActiveSupport::IsolatedExecutionState[:number]]]
      end
      server = Capybara::Server.new(Rack::Lint.new(app)).boot
      answers = (1..20).map { |n| Thread.new { Net::HTTP.get(URI("#{server.base_url}/?#{n}")) } }.map(&:value)

      assert_equal (1..20).map(&:to_s), answers
    end
  end
end
