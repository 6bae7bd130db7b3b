# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # It also enables YJIT, if Ruby has it.
  class AppLoaderTest < Test
    APP = 'run ->(env) { [200, {}, [RubyVM::YJIT.enabled?.to_s]] }'
    RAILS = "module Rails; class Application; end; end\n"

    def setup
      super
      skip "This Ruby was built without YJIT: see `ruby --yjit --version`" unless defined?(RubyVM::YJIT)
    end

    def test_it_is_on_in_the_workers_and_the_banner_says_so
      with_server(APP) do |server|
        assert_equal "true", server.get.body
        assert_match(/workers +1 process with YJIT/, server.log)
      end
    end

    def test_it_is_on_in_workers_that_load_the_app_themselves_and_in_the_foreground
      [["--no-preload"], ["-w", "0"]].each { |flags| with_server(APP, *flags) { |server| assert_equal "true", server.get.body } }
    end

    def test_it_stays_off_where_it_is_not_wanted
      with_server(APP, "--no-yjit") { |server| assert_equal "false", server.get.body }
    end

    def test_a_rails_app_decides_by_itself
      with_server(RAILS + APP) { |server| assert_equal "false", server.get.body }
    end
  end
end
