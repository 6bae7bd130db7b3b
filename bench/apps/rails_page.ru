# frozen_string_literal: true

# A page of a shop: a layout, a partial for each product, helpers. Its assets are public files.

require "action_view/railtie"
require_relative "rails_application"

public_folder = ENV.fetch("PUBLIC_FILES")
ASSETS = Dir.glob("assets/**/*.{css,js,svg,webp,woff2}", base: public_folder).sort.map { |path| "/#{path}" }.freeze
WORDS = "a light and solid thing for each day of your year, made by hand from oak, wool or steel that we found near our town".split
PRODUCTS = Array.new(40) do |n|
  { name: "Product #{n}", price: n * 1.25, text: WORDS.shuffle(random: Random.new(n)).first(15).join(" ") }
end.freeze

BenchApplication.configure do
  config.paths["public"] = public_folder
  config.public_file_server.headers = { "cache-control" => "public, max-age=31536000" }
  # For a server that compresses nothing. Files have copies.
  config.middleware.insert_after(ActionDispatch::Static, Rack::Deflater) if ENV["DEFLATE"]
  routes.append { root to: "pages#show" }
end
BenchApplication.initialize!

class PagesController < ActionController::Base
  prepend_view_path File.join(__dir__, "views")

  def show
    @products = PRODUCTS
    @images = ASSETS.grep(/products/)
  end
end

run BenchApplication
