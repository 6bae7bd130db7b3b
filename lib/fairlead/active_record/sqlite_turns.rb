# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # Of SQLite3Adapter: this process begins its transactions in the order in which they came.
    #
    # SQLite has no queue for its lock: each connection tries again every millisecond, and with many requests some would wait
    # until their `timeout` is over. A connection keeps its turn until it has the lock, not until its transaction ends.
    module SqliteTurns
      @turns = {}
      @making = ::Thread::Mutex.new

      class << self
        # @return [void]
        def install = ::ActiveSupport.on_load(:active_record_sqlite3adapter) { prepend(SqliteTurns) }

        # @param database [String] its file.
        # @return [Fairlead::Pool] of the one turn.
        def of(database)
          @turns[database] || @making.synchronize { @turns[database] ||= Fairlead::Pool.new(size: 1, timeout: nil, name: database) { true } }
        end
      end

      # Without a timeout nothing waits for the lock.
      def begin_db_transaction
        return super if @memory_database || !@config[:timeout]

        SqliteTurns.of(@config[:database]).with { super }
      end
    end
  end
end
