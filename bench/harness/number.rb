# frozen_string_literal: true

module Bench
  # A number as people read it: thousands in groups.
  module Number
    # @return [String] "1,234.5"
    def self.text(value, decimals = 0)
      whole, fraction = format("%.#{decimals}f", value).split(".")
      [whole.gsub(/(?<=\d)(?=(\d{3})+\z)/, ","), fraction].compact.join(".")
    end
  end
end
