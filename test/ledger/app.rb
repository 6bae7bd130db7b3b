# frozen_string_literal: true

require "active_record"
require "async"
require "timeout"

module Fairlead
  class Ledger
    # Moves money between accounts: /move?token&from&to&amount&way&seconds. Whatever interrupts it, both rows are written, or
    # none.
    class App
      ::ActiveRecord::Base.logger = nil
      ::ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL"))

      # An account.
      class Account < ::ActiveRecord::Base
        self.table_name = "ledger_accounts"
      end

      # What has come to, or gone from, an account.
      class Entry < ::ActiveRecord::Base
        self.table_name = "ledger_entries"
      end

      POSTGRESQL = ENV.fetch("DATABASE_URL").start_with?("postgres")
      # Whether the connection is within a transaction: asked of the database itself.
      WITHIN = POSTGRESQL ? "SELECT CASE WHEN transaction_timestamp() = statement_timestamp() THEN 0 ELSE 1 END" : "SELECT @@in_transaction"
      # The ways in which it goes on within a transaction whose statement was interrupted, which fails.
      GOES_ON = %w[rescued savepoint].freeze
      SLEEP = POSTGRESQL ? "SELECT pg_sleep(%f)" : "SELECT SLEEP(%f)"

      def call(env)
        @move = env["QUERY_STRING"].split("&").to_h { |pair| pair.split("=") }
        return answer(599) if within?

        send(@move.fetch("way"))
        answer(200)
      rescue ::Timeout::Error, Cancelled
        answer(408)
      rescue ::ActiveRecord::ActiveRecordError
        answer(GOES_ON.include?(@move.fetch("way")) ? 409 : 500)
      end

      # The child task was cancelled.
      Cancelled = Class.new(StandardError)
      private_constant :Cancelled

      private

      def answer(status) = [status, { "content-type" => "text/plain" }, [status.to_s]]
      def within? = Account.connection_pool.with_connection { |connection| connection.select_value(WITHIN).to_i == 1 }
      def seconds = @move.fetch("seconds").to_f
      def plain = move

      def timeout = ::Timeout.timeout(seconds) { move }
      def nested = ::Timeout.timeout(seconds * 1.2) { ::Timeout.timeout(seconds) { move } }

      def cancelled
        task = Async { move }
        Async do
          sleep(seconds)
          task.cancel
        end
        task.wait
        raise Cancelled unless task.completed?
      end

      # Within the transaction, which goes on.
      def rescued
        move do |connection|
          ::Timeout.timeout(seconds) { connection.select_value(format(SLEEP, 0.05)) }
        rescue ::Timeout::Error
          nil
        end
      end

      def savepoint
        Account.transaction do
          Account.transaction(requires_new: true) { ::Timeout.timeout(seconds) { move && raise(::ActiveRecord::Rollback) } }
        rescue ::Timeout::Error
          nil
        ensure
          move
        end
      end

      def move
        from, to, amount = @move.values_at("from", "to", "amount").map(&:to_i)
        Account.transaction do
          [[from, -amount], [to, amount]].sort.each { |id, change| Account.where(id:).update_all(["balance = balance + ?", change]) }
          Entry.create!(token: @move.fetch("token"), account: from, amount: -amount)
          yield Account.connection_pool.active_connection? if block_given?
          Account.connection_pool.active_connection?.select_value(format(SLEEP, seconds / 2)) if seconds > 0.05
          Entry.create!(token: @move.fetch("token"), account: to, amount:)
        end
      end
    end
  end
end
