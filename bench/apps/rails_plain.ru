# frozen_string_literal: true

require_relative "rails_application"

class PlainController < ActionController::Base
  def show = render(plain: "Hello World")
end

BenchApplication.routes.append { root to: "plain#show" }
BenchApplication.initialize!

run BenchApplication
