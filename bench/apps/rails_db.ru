# frozen_string_literal: true

require "active_record/railtie"
require_relative "rails_application"

# Each process may open as many as half of the requests at once.
ENV["DATABASE_URL"] = "#{ENV.fetch("DATABASE_URL")}?max_connections=80"

# A connection is held while it is used, under every server.
BenchApplication.config.active_record.permanent_connection_checkout = :disallowed
BenchApplication.initialize!

class BenchItem < ActiveRecord::Base
end

class ItemsController < ActionController::Base
  def show
    BenchItem.with_connection { |connection| connection.execute("SELECT pg_sleep(0.005)") }
    render(json: BenchItem.find(rand(1..1000)))
  end
end

BenchApplication.routes.draw { root to: "items#show" }

run BenchApplication
