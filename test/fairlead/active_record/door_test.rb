# frozen_string_literal: true

require "active_record"
require_relative "../../helper"

module Fairlead
  # Where those wait whom the database does not let in.
  class DoorTest < Test
    POOL = Struct.new(:checkout_timeout).new(30)
    private_constant :POOL

    # Stands for an adapter.
    class Adapter
      attr_reader :closed

      def disconnect! = @closed = true
    end

    def test_a_connection_for_one_who_leaves_at_that_moment_in_another_thread_is_not_lost
      door = ActiveRecord::Door.new(POOL)
      leaver = Thread.new { door.enter { raise ::ActiveRecord::ConnectionNotEstablished, "too many clients" } }
      eventually("it waits") { door.wanted? }
      door.instance_variable_get(:@waiting).define_singleton_method(:shift) { super().tap { leaver.kill.join } }
      door.give(adapter = Adapter.new)

      assert adapter.closed
    end
  end
end
