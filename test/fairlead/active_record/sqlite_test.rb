# frozen_string_literal: true

require_relative "../../helper"
require "fairlead/active_record/sqlite_turns"

module Fairlead
  # Many requests that write to SQLite, where one may at a time.
  # Covers active_record/sqlite_turns.rb
  class SqliteTest < Test
    # All together take three times as long as one may wait for a connection, or for the lock.
    COUNT = 60
    APP = <<~'RUBY'
      require "active_record"
      ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: File.join(__dir__, "db.sqlite3"), pool: 5,
        checkout_timeout: 1.5, timeout: 1500)
      ActiveRecord::Base.with_connection { |connection| connection.execute("CREATE TABLE posts (id integer primary key)") }
      class Post < ActiveRecord::Base; end

      write = proc { Post.transaction { Post.create! && sleep(0.075) } && "written" }
      run(lambda do |env|
        # Action Cable's actions run in threads of its own.
        answer = env["PATH_INFO"] == "/thread" ? Thread.new(&write).value : write.call
        [200, { "content-type" => "text/plain" }, [answer]]
      end)
    RUBY
    private_constant :COUNT, :APP

    def test_each_is_served_however_many_come_at_once
      with_server(APP, "--workers", "0") do |server|
        answers = Array.new(COUNT) { |n| Thread.new { server.get(n % 10 == 9 ? "/thread" : "/") } }.map(&:value)

        assert_each_equal(%w[200 written], answers.map { |answer| [answer.code, answer.body] }, server)
      end
    end

    # Else two would begin at once.
    def test_threads_that_are_the_first_to_ask_for_the_turn_get_the_same_one
      database = "of #{object_id}"
      first, other = Thread.current, nil
      slow = Module.new do
        define_method(:new) do |*arguments, **options, &block|
          (other = Thread.new { ActiveRecord::SqliteTurns.of(database) }).then { Thread.pass until other.stop? } if Thread.current == first
          super(*arguments, **options, &block)
        end
      end
      Pool.singleton_class.prepend(slow)

      assert_same ActiveRecord::SqliteTurns.of(database), other.value
    ensure
      slow&.remove_method(:new)
    end
  end
end
