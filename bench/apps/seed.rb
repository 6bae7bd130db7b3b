# frozen_string_literal: true

# Makes the table of the workloads with a database; prints the database's version.

require "active_record"

ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL"))
ActiveRecord::Schema.verbose = false

class BenchItem < ActiveRecord::Base
end

unless BenchItem.table_exists? && BenchItem.count == 1000
  ActiveRecord::Base.connection.create_table(:bench_items, force: true) do |table|
    table.string :name, null: false
    table.text :description
    table.integer :price
    table.boolean :active, null: false, default: true
    table.timestamps
  end
  BenchItem.insert_all(
    (1..1000).map do |n|
      { id: n, name: "Item #{n}", description: "What item #{n} is for. " * 4, price: n * 7 }
    end,
    record_timestamps: true
  )
end

puts ActiveRecord::Base.connection.then { |connection|
  next "PostgreSQL #{connection.select_value("SHOW server_version")}" if connection.adapter_name == "PostgreSQL"

  "MariaDB #{connection.select_value("SELECT VERSION()")}"
}
