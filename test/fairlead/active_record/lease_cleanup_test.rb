# frozen_string_literal: true

require_relative "../../helper"
require "active_record"
require "tmpdir"

module Fairlead
  # Covers active_record/leases.rb, active_record/inherited_role.rb
  class LeaseCleanupTest < Test
    class Primary < ::ActiveRecord::Base
      self.abstract_class = true
    end

    def setup
      super
      Isolation.establish
      @directory = Dir.mktmpdir("fairlead-")
      Primary.connects_to(
        database: { writing: sqlite("writing"), reading: sqlite("reading") }
      )
    end

    def teardown
      Primary.connection_handler.clear_all_connections!(:all)
      FileUtils.remove_entry(@directory)
      super
    end

    def test_what_is_leased_goes_back_to_the_pools_of_all_roles
      in_a_fiber do
        writing = Primary.lease_connection
        reading = Primary.connected_to(role: :reading) { Primary.lease_connection }

        assert_predicate writing, :in_use?
        assert_predicate reading, :in_use?
        ActiveRecord::LeaseCleanup.release

        refute_predicate writing, :in_use?
        refute_predicate reading, :in_use?
      end
    end

    # An exception of whatever class: the serving fiber, its owner, never dies.
    def test_one_that_cannot_be_given_back_keeps_no_other_from_its_pool
      in_a_fiber do
        broken = Primary.lease_connection
        reading = Primary.connected_to(role: :reading) { Primary.lease_connection }
        broken.define_singleton_method(:expire) { |*| raise NotImplementedError, "of a callback" }
        capture_io { ActiveRecord::LeaseCleanup.release }

        refute_predicate reading, :in_use?
        refute_includes broken.pool.connections, broken
        refute_predicate broken, :connected?
        assert Primary.with_connection { |connection| connection.select_value("SELECT 1") }
      end
    end

    def test_a_check_in_that_fails_loses_no_connection
      in_a_fiber do
        pool = Primary.connection_pool
        broken = pool.checkout
        broken.define_singleton_method(:expire) { |*| raise NotImplementedError, "of a callback" }

        assert_raises(NotImplementedError) { pool.checkin(broken) }
        assert_equal 0, pool.stat[:busy]
        assert_empty pool.connections
      end
    end

    def test_what_another_fiber_has_leased_stays_with_it
      other = Fiber.new do
        FiberOwner.own_state
        connection = Primary.lease_connection
        Fiber.yield connection
        ActiveRecord::LeaseCleanup.release
      end
      connection = other.resume
      in_a_fiber do
        refute_same connection, Primary.lease_connection
        ActiveRecord::LeaseCleanup.release
      end

      assert_predicate connection, :in_use?
      other.resume

      refute_predicate connection, :in_use?
    end

    def test_a_connection_within_a_forgotten_transaction_is_closed_and_the_transaction_rolled_back
      in_a_fiber do
        connection = Primary.lease_connection
        connection.execute("CREATE TABLE things (name text)")
        connection.begin_transaction
        connection.execute("INSERT INTO things VALUES ('never committed')")

        _, said = capture_io { ActiveRecord::LeaseCleanup.release }

        assert_includes said, "open database transaction"
        refute_predicate connection, :connected?
        assert_equal 0, Primary.with_connection { |fresh| fresh.select_value("SELECT count(*) FROM things") }
      end
    end

    def test_nothing_is_leased_by_asking
      in_a_fiber do
        Primary.with_connection { |connection| connection.execute("SELECT 1") }
        3.times { ActiveRecord::LeaseCleanup.release }

        assert_equal 0, Primary.connection_pool.stat[:busy]
      end
    end

    def test_without_active_record_nothing_happens
      script = <<~RUBY
        require "fairlead/parts"
        Fairlead::ActiveRecord::LeaseCleanup.release
        print defined?(::ActiveRecord).inspect
      RUBY
      written = IO.popen([RbConfig.ruby, "-I", File.join(ROOT, "lib"), "-e", script], err: %i[child out], &:read)

      assert_equal "nil", written
    end

    private

    def sqlite(name) = { adapter: "sqlite3", database: File.join(@directory, "#{name}.sqlite3"), pool: 5 }

    def in_a_fiber = Fiber.new { FiberOwner.own_state || yield }.resume
  end
end
