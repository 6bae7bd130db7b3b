# frozen_string_literal: true

require "sqlite3"
require_relative "../fiber_safety/uninterruptible"

module Fairlead
  module Drivers
    # sqlite3 waits for a lock the way fibers do, within a call to SQLite. Before 2.10.2, an exception there skips the rest of
    # that call, and leaves SQLite's mutex locked: the next thread that uses the connection waits for ever, with the GVL. Here
    # SQLite ends its call first.
    module SQLite3
      # The first version that does so itself.
      FIXED = Gem::Version.new("2.10.2")

      # @return [void]
      def self.guard
        ::SQLite3::Statement.prepend(Statement)
        ::SQLite3::Database.prepend(Database)
      end

      # An interrupted wait for a lock ends.
      module Database
        def busy_handler(*arguments, &block)
          handler = arguments.first || block or return super

          super() { |count| !Fiber.current.fairlead_section&.held && handler.call(count) }
        end

        def close = Uninterruptible.run { super }

        private

        def exec_batch(...) = Uninterruptible.run { super }
      end

      # Runs SQLite's code.
      module Statement
        def initialize(...) = Uninterruptible.run { super }
        def step = Uninterruptible.run { super }
      end

      guard if Gem::Version.new(::SQLite3::VERSION) < FIXED
    end
  end
end
