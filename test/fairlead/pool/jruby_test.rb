# frozen_string_literal: true

require_relative "helper"
return if RUBY_ENGINE == "jruby"

require "open3"

module Fairlead
  # All of the pool's tests once more, on JRuby, where threads run at the same time.
  class PoolOnJRubyTest < PoolTest
    PROGRAM = File.expand_path("../../../bin/jruby", __dir__)

    def test_the_pool_s_tests_pass_on_jruby
      skip "there is no Java here (bin/setup --tests installs it)" unless system("command -v java >/dev/null")

      # What it is made of is fetched now, if it has not been.
      answer = status = nil
      3.times { answer, status = Open3.capture2e(PROGRAM, "--version") unless status&.success? }
      skip "JRuby cannot be had here: #{answer}" unless status.success?

      output, status = Open3.capture2e(PROGRAM, "--test")

      assert_predicate status, :success?, output
      assert_operator output[/^(\d+) runs, /, 1].to_i, :>=, 60, output
    end
  end
end
