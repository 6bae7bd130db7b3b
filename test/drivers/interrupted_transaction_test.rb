# frozen_string_literal: true

require_relative "../helper"
require_relative "databases"

module Fairlead
  # A statement within a transaction of ActiveRecord's is interrupted: what reaches the app, and the log, is the interruption, and no
  # error of the clean-up after it.
  # Covers drivers/postgresql.rb
  class InterruptedTransactionTest < Test
    include Databases
    needs :database

    # Seconds; a query begins within them.
    LIMIT = 2
    APP = <<~RUBY
      require "active_record"
      require "timeout"
      ActiveRecord::Base.logger = nil
      ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL") + "?pool=1&checkout_timeout=10")
      SLEEP = ENV.fetch("DATABASE_URL").start_with?("postgresql") ? "SELECT pg_sleep(20)" : "SELECT SLEEP(20)"

      class Entry < ActiveRecord::Base
        self.table_name = "interrupted_entries"

        def self.write_and_sleep(nested: false)
          transaction do
            create!(number: 1)
            transaction(requires_new: nested) { create!(number: 2) && connection_pool.active_connection?.select_value(SLEEP) }
          end
        end
      end

      run(lambda do |env|
        path = env["PATH_INFO"]
        answer = case path
                 when "/setup"
                   ActiveRecord::Base.with_connection { |one| one.create_table(:interrupted_entries, force: true) { |table| table.integer :number } }
                   Entry.count
                 when "/count" then Entry.count
                 when "/timeout" then Timeout.timeout(0.3) { Entry.write_and_sleep }
                 when "/savepoint" then Timeout.timeout(0.3) { Entry.write_and_sleep(nested: true) }
                 when "/sleep" then Entry.write_and_sleep
                 when "/rescued"
                   Entry.transaction do
                     begin
                       Timeout.timeout(0.3) { Entry.write_and_sleep(nested: true) }
                     rescue Timeout::Error
                       nil
                     end
                     Entry.create!(number: 3)
                   end
                 end
        [200, {}, [answer.to_s]]
      rescue Exception => error
        warn "the app: \#{error.class}"
        raise if path == "/sleep"

        [500, {}, [error.class.name]]
      end)
    RUBY
    private_constant :LIMIT, :APP

    %w[postgresql mysql2 trilogy].each do |adapter|
      define_method("test_with_#{adapter}_a_timeout_reaches_whoever_began_the_transaction") do
        server = server(adapter)

        assert_equal(%w[Timeout::Error Timeout::Error], %w[/timeout /savepoint].map { |path| server.get(path).body })
        assert_equal "0", server.get("/count").body
      end

      # Whoever goes on after the interruption writes nothing without the rest.
      define_method("test_with_#{adapter}_a_transaction_does_not_go_on_after_it_was_interrupted") do
        server = server(adapter)

        assert_match(/ActiveRecord::Connection(NotEstablished|Failed)/, server.get("/rescued").body)
        assert_equal "0", server.get("/count").body
      end

      define_method("test_with_#{adapter}_an_app_learns_within_its_transaction_that_it_has_taken_too_long") do
        server = server(adapter)

        assert_equal "504", server.get("/sleep").code
        assert_equal "0", server.get("/count").body
        assert_equal ["the app: Fairlead::RequestTimeout"], server.log.scan(/^the app: .*/)
      end

      define_method("test_with_#{adapter}_a_client_that_goes_within_a_transaction_is_no_error") do
        server = server(adapter, "--request-timeout", "60", "--cancel-abandoned")
        seconds_until_abandoned(server, "/sleep", sleepers(adapter, 20))

        assert_equal "0", server.get("/count").body
        assert_equal ["the app: Fairlead::ClientGone"], server.log.scan(/^the app: .*/)
        refute_match(/GET .sleep|ConnectionBad/, server.log)
      end
    end

    private

    def server(adapter, *flags)
      flags = ["--request-timeout", LIMIT.to_s] if flags.empty?
      server = with_server(APP, *flags, lint: false, env: { "DATABASE_URL" => Databases.url(adapter) })

      assert_equal "0", server.get("/setup").body, server.log
      server
    end
  end
end
