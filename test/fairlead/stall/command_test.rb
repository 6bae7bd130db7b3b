# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  class Stall
    # Which server is meant, and what is said when it is not clear.
    class CommandTest < Test
      def test_the_server_of_this_folder_is_meant
        assert_includes run_with(server(1), server(2, folder: Dir.pwd)), "process 2"
      end

      def test_else_the_only_one
        assert_includes run_with(server(1)), "process 1"
      end

      def test_else_the_one_that_is_named
        assert_includes run_with(server(1), server(2), arguments: %w[--pid 2]), "process 2"
      end

      def test_else_they_are_listed
        error = assert_raises(ConfigurationError) { run_with(server(1), server(2)) }

        assert_equal "Which server? Name it by --pid:\n  --pid 1  /app  http://127.0.0.1:9292\n  --pid 2  /app  http://127.0.0.1:9292",
                     error.message
      end

      def test_none_at_all_is_said_with_what_to_do
        error = assert_raises(ConfigurationError) { run_with }

        assert_equal "No server of this user runs. Start one (`fairlead`, `bin/rails server`), or ask as the user who runs it.",
                     error.message
      end

      def test_a_wrong_flag_is_told
        [%w[--wrong], %w[-n x], %w[somewhere]].each do |arguments|
          assert_raises(ConfigurationError) { run_with(server(1), arguments:) }
        end
      end

      def test_nothing_has_stalled_is_an_answer_too
        assert_equal "Fairlead in /app, process 1, http://127.0.0.1:9292\nNothing has stalled for more than 0.05 s.\n", run_with(server(1))
      end

      def test_it_has_help
        assert_includes run_with(arguments: %w[--help]), "Usage: fairlead stalls"
      end

      private

      def run_with(*servers, arguments: [])
        output = StringIO.new
        Command.new(arguments, output:, servers: -> { servers }).run
        output.string
      end

      def server(pid, folder: "/app")
        { pid:, folder:, tag: "app", addresses: ["http://127.0.0.1:9292"], limit: 0.05, stalls: [] }
      end
    end
  end
end
