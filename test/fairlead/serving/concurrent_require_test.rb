# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../burst"

module Fairlead
  # Requests that load the same file at the same time, as the first ones after a start do: one loads it, the others wait for it.
  # Covers serving/scheduler.rb
  class ConcurrentRequireTest < Test
    include Burst

    APP = <<~RUBY
      $LOAD_PATH.unshift(__dir__)
      Object.autoload :Slow, "slow_constant"
      run lambda { |env|
        value = env["PATH_INFO"] == "/autoload" ? Slow : (require "slow_feature"; SLOW_FEATURE)
        [200, {}, [value.to_s]]
      }
    RUBY
    FILES = { "slow_feature.rb" => "sleep 0.2\nSLOW_FEATURE = 'loaded'\n", "slow_constant.rb" => "sleep 0.2\nSlow = 'loaded'\n" }.freeze

    def test_a_required_file_is_waited_for = assert_all_get_it("/require")
    def test_a_constant_that_is_loaded_by_its_name_is_waited_for = assert_all_get_it("/autoload")

    private

    def assert_all_get_it(path)
      with_server(APP, files: FILES) do |server|
        assert_each_equal([200, "loaded"], burst(server, [path] * 10), server) { |answer| [answer.status, answer.body] }
      end
    end
  end
end
