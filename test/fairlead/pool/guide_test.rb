# frozen_string_literal: true

require_relative "helper"

module Fairlead
  # The guide's examples run as written, and what they say after `# =>` is so.
  class PoolGuideTest < PoolTest
    GUIDE = File.read(File.expand_path("../../../guides/fair-pool.md", __dir__))

    GUIDE.scan(/^```ruby\n(.*?)^```/m).flatten.each_with_index do |example, index|
      define_method("test_example_#{index + 1}") do
        skip "there is no Fiber scheduler here" if example.include?("async") && RUBY_ENGINE == "jruby"
        code, expected = example.split("# =>")
        value = eval(code, TOPLEVEL_BINDING.dup, "guides/fair-pool.md")
        next assert(value) unless expected

        wanted = eval(expected)
        assert_equal wanted, value
      end
    end

    def test_there_are_examples
      assert_operator self.class.instance_methods.grep(/test_example/).size, :>=, 8
    end
  end
end
