# frozen_string_literal: true

require_relative "helper"

module Fairlead
  # A test that fails tells what its servers have logged, and what runs in them.
  class FailureAccountTest < Test
    FAILING = <<~RUBY.freeze
      require #{File.join(ROOT, "test/helper").inspect}

      class Failing < Fairlead::Test
        APP = 'run ->(env) { warn("asked"); env["PATH_INFO"] == "/" ? sleep(100) : [200, {}, ["x"]] }'

        def test_in_the_block = with_server(APP) { |server| fail_beside(server) }
        def test_shared = fail_beside(shared_server(APP))

        def fail_beside(server)
          server.connect do |socket|
            socket.write("GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
            eventually("it runs") { server.log.include?("asked") }
            flunk
          end
        end
      end
    RUBY

    def test_of_many_answers_the_first_that_differs_is_told
      with_server('run ->(env) { warn("asked"); [env["PATH_INFO"] == "/" ? 200 : 503, {}, [env["PATH_INFO"]]] }') do |server|
        answers = %w[/ /no].map { |path| server.get(path) }
        said = assert_raises(Minitest::Assertion) { assert_each_equal "200", answers, server, &:code }.message

        assert_match(%r{\A1 of 2 are not "200"; number 1 is \["503", "/no"\]\n.*^asked$}m, said)
      end
    end

    %w[in_the_block shared].each do |name|
      define_method(:"test_#{name}") do
        said = Dir.mktmpdir do |folder|
          File.write(file = File.join(folder, "failing_test.rb"), FAILING)
          IO.popen([RbConfig.ruby, file, "--name", "test_#{name}", err: %i[child out]], &:read)
        end

        assert_match(/^asked$/, said)
        assert_match(/sleeping +GET \/$/, said)
        assert_equal 1, said.scan("The server's log:").size
      end
    end
  end
end
