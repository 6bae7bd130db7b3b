# frozen_string_literal: true

module PoolBench
  # The pools that are compared. Each is asked for a connection for the block, and takes one on without work.
  module Contestants
    WAIT = 60 # seconds; nobody shall time out, however unfair

    # Answers with(&block) and knows what it can serve.
    Contestant = Struct.new(:name, :version, :kinds, :with, :close, keyword_init: true)

    module_function

    # @return [Hash{String => Proc}] by name; each makes a contestant with the given size, or raises LoadError.
    def all
      {
        "fairlead-pool" => method(:fairlead_pool), "connection_pool" => method(:connection_pool),
        "activerecord" => method(:active_record), "activerecord-served" => method(:active_record_served),
        "sequel" => method(:sequel), "async-pool" => method(:async_pool), "control" => method(:control)
      }
    end

    def fairlead_pool(size, _kind)
      require_relative "../../lib/fairlead/pool"
      pool = Fairlead::Pool.new(size: size, timeout: WAIT) { Object.new }
      Contestant.new(version: Fairlead::VERSION, with: ->(&block) { pool.with(&block) })
    end

    def connection_pool(size, _kind)
      require "connection_pool"
      pool = ConnectionPool.new(size: size, timeout: WAIT) { Object.new }
      Contestant.new(version: ConnectionPool::VERSION, with: ->(&block) { pool.with(&block) })
    end

    # Its own pool, over SQLite in memory: a connection is needed, but never used.
    def active_record(size, kind)
      require "active_record"
      require "activerecord-jdbcsqlite3-adapter" if RUBY_ENGINE == "jruby"
      ActiveSupport::IsolatedExecutionState.isolation_level = kind == :fibers ? :fiber : :thread
      ActiveRecord::Base.establish_connection(
        adapter: "sqlite3", database: ":memory:", pool: size, checkout_timeout: WAIT, reaping_frequency: nil
      )
      pool = ActiveRecord::Base.connection_pool
      Contestant.new(
        version: ActiveRecord::VERSION::STRING, with: ->(&block) { pool.with_connection(&block) },
        close: -> { ActiveRecord::Base.connection_handler.clear_all_connections!(:all) }
      )
    end

    # The same pool, with what Fairlead changes in it while it serves.
    def active_record_served(size, kind)
      raise LoadError, "Fairlead serves on CRuby" unless RUBY_ENGINE == "ruby"

      require_relative "../../lib/fairlead/parts"
      $LOAD_PATH.unshift(File.expand_path("../../lib", __dir__))
      Fairlead::ActiveRecord::PoolPatch.install
      active_record(size, kind)
    end

    # Over its mock of a database; with fibers as its extension for them says.
    def sequel(size, kind)
      require "sequel"
      Sequel.extension(:fiber_concurrency) if kind == :fibers
      pool = Sequel.connect("mock://", max_connections: size, pool_timeout: WAIT, keep_reference: false).pool
      Contestant.new(version: Sequel.version, with: ->(&block) { pool.hold(&block) })
    end

    # The least that is fair, and no pool at all: a lock, and a line of those who wait, each with a signal of
    # its own. How far it is from the ideal is the machine's and Ruby's doing.
    def control(size, _kind)
      lock = Mutex.new
      free = size
      line = []
      take = lambda do
        lock.synchronize do
          next free -= 1 if free.positive?

          line << (turn = [ConditionVariable.new, false])
          turn[0].wait(lock) until turn[1]
        end
      end
      give = lambda do
        lock.synchronize do
          next free += 1 unless (turn = line.shift)

          turn[1] = true
          turn[0].signal
        end
      end
      with = lambda do |&block|
        take.call
        begin
          block.call
        ensure
          give.call
        end
      end
      Contestant.new(version: "(no pool)", with: with)
    end

    # It serves fibers alone.
    def async_pool(size, kind)
      raise LoadError, "serves fibers, not threads" unless kind == :fibers

      require "async/pool/controller"
      require "async/pool/resource"
      pool = Async::Pool::Controller.new(Async::Pool::Resource, limit: size)
      version = Gem.loaded_specs["async-pool"]&.version
      Contestant.new(version: version, with: ->(&block) { pool.acquire(&block) }, close: -> { pool.close })
    end
  end
end
