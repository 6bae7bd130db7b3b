# frozen_string_literal: true

module PoolBench
  # What the fair pool should reach on CRuby, told from a table of a result. Nothing was aimed at on JRuby.
  module Aims
    # How much longer than ideal the longest wait of all may be.
    LONGEST = { "threads" => 1.2, "fibers" => 1.2, "crowd" => 1.06 }.freeze
    COST = 1.2 # microseconds
    OURS = "fairlead-pool"
    OTHER = "connection_pool"
    private_constant :LONGEST, :COST, :OURS, :OTHER

    module_function

    # @param table [Hash{String => Object}]
    # @return [Array<(String, Boolean)>] each aim, and whether it was reached; nil where that is not known.
    def of(table)
      return [] unless table["ruby"].to_s.start_with?("ruby")

      table["key"] == "cost" ? cost(table) : waiting(table)
    end

    def waiting(table)
      ours = row(table, OURS)
      other = row(table, OTHER)
      most = LONGEST.fetch(table["key"])
      [
        ["the longest wait at most #{most} × the ideal", ours && ours["max"] <= most * table["ideal"]],
        ["requests/s not below connection_pool's", other && ours && ours["rate"] >= other["rate"]],
        ["no error", ours && ours["errors"].zero?]
      ]
    end

    def cost(table)
      ours = row(table, OURS)
      [["under #{COST} µs", ours && ours["microseconds"] < COST]]
    end

    def row(table, name) = table["rows"].find { |row| row["name"].start_with?("#{name} ") }
  end
end
