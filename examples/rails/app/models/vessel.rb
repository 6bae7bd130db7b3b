# frozen_string_literal: true

# A ship: what `find` looks up.
class Vessel < ApplicationRecord
  SEEDED = 500

  validates :name, :kind, :flag, presence: true
end
