# frozen_string_literal: true

require_relative "../../test/helper"
require_relative "../harness/cli"

module Bench
  class StallTest < Fairlead::Test
    APP = <<~RUBY
      run lambda { |env|
        sleep env["QUERY_STRING"].to_f
        [env["PATH_INFO"] == "/wrong" ? 500 : 200, {}, ["Hello World"]]
      }
    RUBY

    def test_the_slowest_is_the_last_of_fifty_that_came_at_once
      with_server(APP) do |server|
        figures = Stall.new.run(server, 1)
        assert_equal [50, 0, 0], figures.values_at(:requests, :errors, :non_2xx)
        assert_operator figures[:p50], :>=, 100
        assert_operator figures[:slowest], :>=, figures[:p50]
      end
    end

    PLACES = <<~RUBY
      run lambda { |env|
        sleep env["QUERY_STRING"].to_f
        [200, { "x-thread" => env["QUERY_STRING"] == "0.1" ? rand(2).to_s : "1" }, ["Hello World"]]
      }
    RUBY

    def test_those_that_were_suspended_with_a_stall_are_told_from_the_others
      with_server(PLACES) do |server|
        figures = Stall.new("/free", suspends: "thread", blockers: 1).run(server, 0)
        assert_includes 5..45, figures[:suspended]
        assert_includes 100..figures[:slowest], figures[:elsewhere]
      end
    end

    def test_a_stall_that_is_answered_wrongly_is_an_error
      with_server(APP) do |server|
        assert_equal 5, Stall.new("/wrong").run(server, 0)[:errors]
      end
    end

    def test_a_stall_that_is_never_answered_is_an_error
      with_server(APP, "--drain-timeout", "0.1") do |server|
        figures = Stall.new("/free", stalls: 20, timeout: 3).run(server, 0)
        assert_equal [50, 5, 0], figures.values_at(:requests, :errors, :non_2xx)
      end
    end
  end
end
