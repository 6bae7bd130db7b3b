# frozen_string_literal: true

require "active_record/railtie"
require_relative "rails_application"

# As many connections as requests at once in this workload, so that none waits for one.
ENV["DATABASE_URL"] = "#{ENV.fetch("DATABASE_URL")}?max_connections=40"

BenchApplication.initialize!

class BenchItem < ActiveRecord::Base
end

class ItemsController < ActionController::Base
  def show = render(json: BenchItem.find(rand(1..1000)))
end

BenchApplication.routes.draw { root to: "items#show" }

run BenchApplication
