# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  class CLI
    # Which server is meant, and what is said when it is not clear.
    # Covers cli/stalls_table.rb
    class StallsTest < Test
      def test_the_server_of_this_folder_is_meant
        assert_includes run_with(server(1), server(2, folder: Dir.pwd)), "process 2"
      end

      def test_else_the_only_one_and_it_is_said_which
        assert_includes run_with(server(1)), "process 1"
        assert_equal "fairlead: No server runs in #{Dir.pwd}. The only one of this user runs in /app (--pid 1).\n\n", @said
        run_with(server(1), arguments: %w[--pid 1])
        assert_empty @said
      end

      # As a deployment sets it anew.
      def test_a_server_that_was_started_in_a_link_is_the_one_of_the_folder_to_which_that_leads_now
        Dir.mktmpdir do |folder|
          %w[1 2].each { |release| Dir.mkdir("#{folder}/#{release}") }
          File.symlink("2", "#{folder}/current")
          servers = [server(1), server(2, folder: "#{folder}/1", named: "#{folder}/current")]
          Dir.chdir("#{folder}/2") { assert_includes run_with(*servers), "process 2" }

          assert_empty @said
        end
      end

      def test_else_the_one_that_is_named
        assert_includes run_with(server(1), server(2), arguments: %w[--pid 2]), "process 2"
      end

      def test_else_they_are_listed
        error = assert_raises(ConfigurationError) { run_with(server(1), server(2)) }

        assert_equal "Several servers run. Name one with --pid:\n  --pid 1  /app  http://127.0.0.1:9292\n  --pid 2  /app  http://127.0.0.1:9292",
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
        errors = StringIO.new
        Stalls.new(arguments, output:, errors:, servers: -> { servers }).run
        @said = errors.string
        output.string
      end

      def server(pid, folder: "/app", named: nil)
        { pid:, folder:, named:, tag: "app", addresses: ["http://127.0.0.1:9292"], limit: 0.05, stalls: [] }
      end
    end
  end
end
