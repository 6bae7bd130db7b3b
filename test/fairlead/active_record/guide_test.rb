# frozen_string_literal: true

require "open3"
require "pg"
require "tmpdir"
require_relative "../../burst"
require_relative "../../helper"

module Fairlead
  # The examples of guides/active-record.md run as written, and what they say after `# =>` is so.
  class ActiveRecordGuideTest < Test
    include Burst
    needs :database

    GUIDE = File.read(File.expand_path("../../../guides/active-record.md", __dir__))
    SETTINGS = GUIDE[/^```ruby-configuration\n(.*?)^```/m, 1]
    private_constant :GUIDE, :SETTINGS

    # What the examples share. They run in a process of their own: `Fairlead::ActiveRecord.stat` tells of all pools of one,
    # and so of those that other tests have made.
    PROGRAM = <<~'RUBY'
      require "active_record"
      require "async"
      require "fairlead/parts"
      path, examples = Marshal.load($stdin.binmode)
      Fairlead::Isolation.establish
      ActiveRecord::Schema.verbose = false
      ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: path, max_connections: 5, reaping_frequency: nil)
      ActiveRecord::Base.with_connection { |connection| connection.create_table(:flights) { |t| t.integer :seats } }
      Flight = Class.new(ActiveRecord::Base)
      Flight.create!(seats: 100)
      ActiveRecord::Base.connection_pool.disconnect!
      values = examples.map do |code, expected|
        value = TOPLEVEL_BINDING.eval(code, "guides/active-record.md")
        [TOPLEVEL_BINDING.eval(expected), value] if expected
      end
      $stdout.binmode.write(Marshal.dump(values))
    RUBY
    private_constant :PROGRAM

    def test_the_examples
      examples = GUIDE.scan(/^```ruby\n(.*?)^```/m).map { |(example)| example.split("# =>") }

      assert_operator examples.size, :>=, 5
      examples.zip(run_examples(examples)) { |(code, _), (expected, value)| assert_equal [expected], [value], code }
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
        seconds_of_burst(server, ["/"] * 200)

        # By the pool's size alone, two workers would have ten.
        assert_includes 20..90, open_connections
      end
    end

    private

    def apps = GUIDE.scan(/^```ruby-app\n(.*?)^```/m).flatten

    # However long a request stands in line on a machine that does other work: that is no error here.
    def database(size)
      url = ENV.fetch("TEST_DATABASE_URL")
      { "DATABASE_URL" => "#{url}?max_connections=#{size}&checkout_timeout=60&application_name=guide" }
    end

    def open_connections
      database = PG.connect(ENV.fetch("TEST_DATABASE_URL"))
      database.exec("SELECT FROM pg_stat_activity WHERE application_name = 'guide'").ntuples
    ensure
      database&.close
    end

    # @return [Array<Array, nil>] for each what it should be and what it is; nil if nothing is said.
    def run_examples(examples)
      Dir.mktmpdir("fairlead-") do |folder|
        output, errors, status = Open3.capture3(RbConfig.ruby, "-I", File.join(ROOT, "lib"), "-e", PROGRAM, binmode: true,
                                                stdin_data: Marshal.dump([File.join(folder, "test.sqlite3"), examples]))

        assert_predicate status, :success?, errors
        Marshal.load(output)
      end
    end
  end
end
