# frozen_string_literal: true

require_relative "../helper"
require_relative "databases"
require "active_record"
require "async"
require "pg"
require "trilogy"

module Fairlead
  # A connection that goes from one fiber to the next.
  class HandoverTest < Test
    include Databases
    needs :database

    class Record < ::ActiveRecord::Base
      self.abstract_class = true
    end

    def setup
      super
      Isolation.establish
      Drivers.establish
    end

    def teardown
      Record.remove_connection
      super
    end

    %w[postgresql mysql2 trilogy].each do |adapter|
      define_method("test_what_the_server_of_#{adapter}_has_closed_while_it_was_held_is_not_what_the_next_one_gets") do
        Record.establish_connection("#{Databases.url(adapter)}?pool=1")
        pool = Record.connection_pool
        Sync do |task|
          connection = pool.checkout
          connection.execute("SELECT 7")
          waiter = task.async { pool.with_connection { |other| other.execute("SELECT 7") && :served } }
          end_connection(connection)
          pool.checkin(connection)

          assert_equal :served, waiter.wait
        end
      end
    end

    private

    def end_connection(connection)
      if connection.adapter_name == "PostgreSQL"
        id = connection.select_value("SELECT pg_backend_pid()")
        PG.connect(Databases.postgresql) do |other|
          other.exec("SELECT pg_terminate_backend(#{id})")
          eventually("it is gone") { other.exec("SELECT FROM pg_stat_activity WHERE pid = #{id}").ntuples.zero? }
        end
      else
        id = connection.select_value("SELECT CONNECTION_ID()")
        other = Trilogy.new(**Databases.mariadb_settings)
        other.query("KILL #{id}")
        eventually("it is gone") { other.query("SELECT id FROM information_schema.processlist WHERE id = #{id}").to_a.empty? }
        other.close
      end
    end
  end
end
