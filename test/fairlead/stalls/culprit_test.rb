# frozen_string_literal: true

require_relative "../../helper"
require "rack"
require "async"

module Fairlead
  class Stall
    class CulpritTest < Test
      LIBRARY = RbConfig::CONFIG["rubylibdir"]

      def test_the_first_frame_of_the_app_is_to_blame
        culprit = Culprit.new(["#{LIBRARY}/net/http.rb:10:in `get'", "<internal:kernel>:1:in `loop'", frame("rack", "lib/rack/builder.rb"),
                           "#{Dir.pwd}/app/models/report.rb:12:in `render'", "#{Dir.pwd}/config.ru:1:in `call'"])

        assert_equal "app/models/report.rb:12 in `render'", culprit.at
        assert_nil culprit.gem
      end

      def test_a_gem_that_is_no_framework_is_to_blame_and_named
        gem = Gem.loaded_specs.fetch("minitest")
        culprit = Culprit.new([frame("minitest", "lib/minitest/test.rb"), "#{Dir.pwd}/app.rb:1:in `call'"])

        assert_equal "minitest #{gem.version}", culprit.gem
        assert_equal "lib/minitest/test.rb:7 in `run'", culprit.at
      end

      def test_with_nothing_but_the_framework_it_is_the_first_frame
        assert_equal "lib/rack/builder.rb:7 in `run'", Culprit.new([frame("rack", "lib/rack/builder.rb")]).at
      end

      def test_without_a_backtrace_nobody_is
        assert_equal [nil, nil], Culprit.new([]).then { |culprit| [culprit.at, culprit.gem] }
      end

      def test_what_serves_the_app_is_left_out_of_the_backtrace
        app = ["/app.rb:1:in `call'", frame("async", "lib/async/task.rb"), "/app.rb:2:in `call'"]
        beneath = ["#{ROOT}/lib/fairlead/serving/server.rb:1:in `answer'", frame("async", "lib/async/task.rb"), "<internal:kernel>:1:in `loop'"]

        assert_equal app, Culprit.trim(app + beneath)
      end

      private

      def frame(gem, path) = "#{Gem.loaded_specs.fetch(gem).full_gem_path}/#{path}:7:in `run'"
    end
  end
end
