# frozen_string_literal: true

# Ten short waits in the database, one after the other, in a plain Rack app with ActiveRecord.
require "active_record"
require "active_support/isolated_execution_state"

# Without Rails nobody else says it for Falcon.
ActiveSupport::IsolatedExecutionState.isolation_level = :fiber if defined?(Falcon)

# One for each request at once, for whoever wants so many.
ActiveRecord::Base.establish_connection("#{ENV.fetch("DATABASE_URL")}?max_connections=512&checkout_timeout=10")

QUERY = ENV.fetch("DATABASE_URL").start_with?("postgres") ? "SELECT pg_sleep(0.01)" : "SELECT SLEEP(0.01)"

run lambda { |_env|
  10.times { ActiveRecord::Base.with_connection { |connection| connection.execute(QUERY) } }
  [200, { "content-type" => "text/plain" }, ["10 x 10 ms"]]
}
