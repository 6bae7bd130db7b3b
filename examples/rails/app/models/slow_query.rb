# frozen_string_literal: true

# Runs a query that takes a given time, in the way of each database.
module SlowQuery
  # @param seconds [Float]
  # @return [String] what the database did
  def self.run(seconds)
    Vessel.with_connection do |connection|
      case connection.adapter_name
      when "PostgreSQL"
        connection.select_value("SELECT pg_sleep(#{Float(seconds)})")
        "PostgreSQL ran SELECT pg_sleep(#{seconds})"
      when "Trilogy", "Mysql2"
        connection.select_value("SELECT SLEEP(#{Float(seconds)})")
        "MySQL ran SELECT SLEEP(#{seconds})"
      else
        sleep seconds
        connection.select_value("SELECT 1")
        "SQLite has no sleep: the request held a database connection, waited #{seconds} s in Ruby, then ran SELECT 1"
      end
    end
  end

  # @return [String] what it will do, for the page
  def self.explanation
    case Vessel.connection_db_config.adapter
    when "postgresql" then "PostgreSQL runs <code>SELECT pg_sleep(…)</code> through ActiveRecord."
    when "trilogy", "mysql2" then "MySQL runs <code>SELECT SLEEP(…)</code> through ActiveRecord."
    else
      "SQLite has no sleep and no server that could be slow. So the request holds a database connection, waits in " \
        "Ruby, then runs <code>SELECT 1</code>. Start the demo with <code>DATABASE_URL</code> to use a server."
    end
  end
end
