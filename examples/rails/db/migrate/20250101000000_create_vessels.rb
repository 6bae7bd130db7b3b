# frozen_string_literal: true

class CreateVessels < ActiveRecord::Migration[8.1]
  def change
    create_table :vessels do |t|
      t.string :name, null: false
      t.string :kind, null: false
      t.string :flag, null: false
      t.integer :length, null: false
      t.integer :launched, null: false
      t.timestamps
    end
  end
end
