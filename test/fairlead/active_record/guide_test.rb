# frozen_string_literal: true

require "active_record"
require "async"
require "tmpdir"
require_relative "../../burst"
require_relative "../../helper"

module Fairlead
  # The examples of guides/active-record.md run as written, and what they say after `# =>` is so.
  class ActiveRecordGuideTest < Test
    include Burst

    GUIDE = File.read(File.expand_path("../../../guides/active-record.md", __dir__))
    SETTINGS = GUIDE[/^```ruby-configuration\n(.*?)^```/m, 1]
    private_constant :GUIDE, :SETTINGS

    # What the examples share.
    PREPARATION = <<~RUBY
      ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: path, max_connections: 5, reaping_frequency: nil)
      ActiveRecord::Base.with_connection { |connection| connection.create_table(:flights) { |t| t.integer :seats } }
      Object.const_set(:Flight, Class.new(ActiveRecord::Base))
      Flight.create!(seats: 100)
      ActiveRecord::Base.connection_pool.disconnect!
    RUBY
    private_constant :PREPARATION

    def test_the_examples
      Isolation.establish
      ::ActiveRecord::Schema.verbose = false
      Dir.mktmpdir("fairlead-") do |folder|
        scope = TOPLEVEL_BINDING.dup
        scope.local_variable_set(:path, File.join(folder, "test.sqlite3"))
        scope.eval(PREPARATION)
        examples = GUIDE.scan(/^```ruby\n(.*?)^```/m).flatten
        examples.each { |example| check(example, scope) }

        assert_operator examples.size, :>=, 6
      ensure
        ::ActiveRecord::Base.connection_handler.clear_all_connections!(:all)
      end
    end

    def test_the_first_app_works_as_under_any_server_and_the_log_says_where_it_keeps_connections
      with_server(apps.first, env: database(90)) do |server|
        seconds_of_burst(server, ["/"] * 60)

        assert_equal "ten times\n", server.get("/").body
        assert_match(/Called deprecated `ActiveRecord::Base.connection`.*config\.ru:\d+/m, server.log)
      end
    end

    def test_with_the_settings_the_first_app_is_told_what_to_write_instead
      with_server(apps.first, env: database(5), files: { "config/fairlead.rb" => SETTINGS }) do |server|
        assert_equal "500", server.get("/").code
        assert_includes server.log, "Either use `with_connection` or `lease_connection`"
      end
    end

    def test_with_the_settings_the_second_app_serves_many_with_a_pool_of_five
      with_server(apps.last, env: database(5), files: { "config/fairlead.rb" => SETTINGS }) do |server|
        # One after the other by fives, as the pool's size alone would have it, it would be 4 s.
        assert_one_below(3) { seconds_of_burst(server, ["/"] * 200) }
      end
    end

    private

    def apps = GUIDE.scan(/^```ruby-app\n(.*?)^```/m).flatten

    def database(size)
      url = ENV["TEST_DATABASE_URL"] || skip("No PostgreSQL: run bin/test, or set TEST_DATABASE_URL (bin/services url)")
      { "DATABASE_URL" => "#{url}?max_connections=#{size}" }
    end

    def check(example, scope)
      code, expected = example.split("# =>")
      value = scope.eval(code, "guides/active-record.md")
      assert_equal scope.eval(expected), value, code if expected
    end
  end
end
