# frozen_string_literal: true

# A query that takes a given time, in each database's own way.
module SlowQuery
  # @param seconds [Float]
  # @return [String] what was done, in words.
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
        "SQLite has no sleep: this held a database connection, waited #{seconds} s in Ruby, then ran SELECT 1"
      end
    end
  end

  # @return [String] the same, before it is done, for the page.
  def self.explanation
    case Vessel.connection_db_config.adapter
    when "postgresql" then "PostgreSQL runs <code>SELECT pg_sleep(…)</code> through ActiveRecord."
    when "trilogy", "mysql2" then "MySQL runs <code>SELECT SLEEP(…)</code> through ActiveRecord."
    else
      "SQLite has no sleep, and no server that could be slow. So this holds a database connection, waits in " \
        "Ruby, then runs <code>SELECT 1</code>. For the real thing start the demo with " \
        "<code>DATABASE_URL</code>."
    end
  end
end
