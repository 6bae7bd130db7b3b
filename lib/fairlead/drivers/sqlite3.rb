# frozen_string_literal: true

require "sqlite3"
require_relative "../fiber_safety/uninterruptible"

module Fairlead
  module Drivers
    # sqlite3 waits for a lock the way fibers do, within a call of SQLite's. Before 2.10.2 what is raised there skips the rest
    # of that call, which leaves SQLite's mutex locked: the next thread that uses the connection waits for ever, with Ruby's
    # lock. So SQLite ends its call first.
    module SQLite3
      # From here on it does so itself.
      MENDED = Gem::Version.new("2.10.2")

      # @return [void]
      def self.guard
        ::SQLite3::Statement.prepend(Statement)
        ::SQLite3::Database.prepend(Database)
      end

      # Whoever waits for a lock gives up once it is interrupted.
      module Database
        def busy_handler(*arguments, &block)
          handler = arguments.first || block or return super

          super() { |count| !Fiber.current.fairlead_section&.held && handler.call(count) }
        end

        def close = Uninterruptible.run { super }

        private

        def exec_batch(...) = Uninterruptible.run { super }
      end

      # What runs SQLite's code.
      module Statement
        def initialize(...) = Uninterruptible.run { super }
        def step = Uninterruptible.run { super }
      end

      guard if Gem::Version.new(::SQLite3::VERSION) < MENDED
    end
  end
end
