# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # Of SQLite3Adapter: the transactions of this process begin in the order in which they came.
    #
    # SQLite keeps no line. A connection that finds the database locked looks again every millisecond, and whoever begins just
    # as it is unlocked goes first: with many requests some waited until their `timeout` was over. A connection has its turn
    # until it has the lock, and not until its transaction ends.
    module SqliteTurns
      @turns = {}

      class << self
        # @return [void]
        def install = ::ActiveSupport.on_load(:active_record_sqlite3adapter) { prepend(SqliteTurns) }

        # @param database [String] its file.
        # @return [Fairlead::Pool] of the one turn.
        def of(database) = @turns[database] ||= Fairlead::Pool.new(size: 1, timeout: nil, name: database) { true }
      end

      def begin_db_transaction
        fairlead_shared? ? SqliteTurns.of(@config[:database]).with { super } : super
      end

      private

      # Without a timeout nobody waits for the lock.
      def fairlead_shared? = @config[:timeout] && !@memory_database
    end
  end
end
