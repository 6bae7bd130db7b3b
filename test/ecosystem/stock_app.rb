# frozen_string_literal: true

require "digest"
require_relative "ecosystem"
require_relative "../rails/rails_app"

module Fairlead
  # The app that `rails new` makes, with one scaffold, served by a real command. It is made once, and kept in tmp/ until
  # the bundle or what is said here changes; each server has a copy.
  class StockServer < RailsServer
    # What the app has beside what Rails has written.
    ADDED = {
      "config/initializers/tests.rb" => <<~RUBY,
        Rails.application.configure do
          config.hosts.clear
          config.action_cable.disable_request_forgery_protection = true
          config.action_mailer.default_url_options = { host: "localhost" }
          config.active_storage.variant_processor = :disabled
          config.force_ssl = config.assume_ssl = false
        end
      RUBY
      "config.ru" => <<~RUBY,
        require_relative "config/environment"
        use Rack::Lint
        run Rails.application
        Rails.application.load_server
      RUBY
      # What Rails has written, with names for the files of production.
      "config/database.yml" => <<~YAML,
        default: &default
          adapter: sqlite3
          max_connections: 5
          timeout: 5000
        development:
          <<: *default
          database: storage/development.sqlite3
        test:
          <<: *default
          database: storage/test.sqlite3
        production:
          primary:
            <<: *default
            database: storage/production.sqlite3
          cache:
            <<: *default
            database: storage/production_cache.sqlite3
            migrations_paths: db/cache_migrate
          queue:
            <<: *default
            database: storage/production_queue.sqlite3
            migrations_paths: db/queue_migrate
          cable:
            <<: *default
            database: storage/production_cable.sqlite3
            migrations_paths: db/cable_migrate
      YAML
      "app/models/boat.rb" => <<~RUBY,
        class Boat < ApplicationRecord
          has_one_attached :photo
          after_create_commit { broadcast_append_to "boats" }
          after_update_commit { broadcast_replace_to "boats" }
        end
      RUBY
      "app/views/boats/index.html.erb" => <<~ERB,
        <%= turbo_stream_from "boats" %>
        <h1>Boats</h1>
        <div id="boats"><%= render @boats %></div>
        <%= link_to "New boat", new_boat_path %>
      ERB
      "app/jobs/christen_job.rb" => <<~RUBY,
        class ChristenJob < ApplicationJob
          def perform(boat) = boat.update!(name: "\#{boat.name} II")
        end
      RUBY
      "app/mailers/harbour_mailer.rb" => <<~RUBY,
        class HarbourMailer < ApplicationMailer
          def arrived(boat) = mail(to: "master@example.org", subject: "Arrived: \#{boat.name}", body: boat.name)
        end
      RUBY
      "app/channels/application_cable/connection.rb" => <<~RUBY,
        module ApplicationCable
          class Connection < ActionCable::Connection::Base
          end
        end
      RUBY
      "app/channels/news_channel.rb" => <<~RUBY,
        class NewsChannel < ActionCable::Channel::Base
          def subscribed = stream_from("news")
        end
      RUBY
      "config/routes.rb" => <<~'RUBY',
        Rails.application.routes.draw do
          resources :boats
          root "boats#index"
          get "up" => "rails/health#show"
          post "/photos", to: "probes#photo"
          get "/photos/:id", to: "probes#show_photo"
          post "/christen/:id", to: "probes#christen"
          post "/arrive/:id", to: "probes#arrive"
          get "/broadcast/:text", to: "probes#broadcast"
          get "/name/:id", to: "probes#name"
          get "/version", to: "versions#show"
        end
      RUBY
      "app/controllers/versions_controller.rb" => "class VersionsController < ApplicationController\n  def show = render(plain: \"1\")\nend\n",
      "app/controllers/probes_controller.rb" => <<~'RUBY'
        class ProbesController < ActionController::Base
          skip_forgery_protection

          def photo
            boat = Boat.create!(name: "photographed", photo: params.expect(:photo))
            render json: { id: boat.id, direct: rails_blob_path(boat.photo), proxy: rails_storage_proxy_path(boat.photo) }
          end

          def christen
            ChristenJob.perform_later(Boat.find(params[:id]))
            head :accepted
          end

          def arrive
            HarbourMailer.arrived(Boat.find(params[:id])).deliver_now
            head :ok
          end

          def broadcast
            ActionCable.server.broadcast("news", params[:text])
            render plain: Process.pid.to_s
          end

          def name = render(plain: Boat.find(params[:id]).name)
        end
      RUBY
    }.freeze
    SKIPPED = %w[bundle git kamal thruster ci docker rubocop brakeman bundler-audit dev-gems].map { |what| "--skip-#{what}" }.freeze
    INSTALLED = %w[importmap turbo stimulus solid_cache solid_queue solid_cable active_storage].map { |name| "#{name}:install" }.freeze
    private_constant :ADDED, :SKIPPED, :INSTALLED

    # @return [String] where the app is that all are copied from.
    def self.template
      @template ||= File.join(ROOT, "tmp/stock-app", Digest::SHA256.hexdigest(
        [RUBY_VERSION, File.read(File.join(__dir__, "Gemfile.lock")), File.read(__FILE__)].join
      )[0, 12]).tap { |folder| locked { write_template(folder) unless File.exist?(folder) } }
    end

    # Test files that run at the same time want one template.
    def self.locked
      FileUtils.mkdir_p(File.join(ROOT, "tmp"))
      File.open(File.join(ROOT, "tmp/stock-app.lock"), File::CREAT) { |file| file.flock(File::LOCK_EX) && yield }
    end

    def self.write_template(folder)
      parent = "#{folder}.#{Process.pid}"
      FileUtils.rm_rf(Dir[File.join(ROOT, "tmp/stock-app/*")])
      FileUtils.mkdir_p(parent)
      in_bundle(parent, "rails", "new", "harbour", *SKIPPED)
      app = File.join(parent, "harbour")
      in_bundle(app, "bin/rails", *INSTALLED)
      in_bundle(app, "bin/rails", "generate", "scaffold", "boat", "name:string", "length:integer")
      ADDED.each { |path, text| FileUtils.mkdir_p(File.dirname(File.join(app, path))) && File.write(File.join(app, path), text) }
      %w[development test production].each { |environment| in_bundle(app, "bin/rails", "db:prepare", "RAILS_ENV" => environment) }
      File.rename(app, folder)
      FileUtils.rm_rf(parent)
    end

    def self.in_bundle(folder, *command, **environment)
      variables = EcosystemTest::BUNDLE.merge("SECRET_KEY_BASE" => "0" * 64, **environment.transform_keys(&:to_s))
      output, status = Open3.capture2e(variables, *command, chdir: folder)
      raise "#{command.join(" ")} failed:\n#{output}" unless status.success?

      output
    end
    private_class_method :write_template, :in_bundle

    def initialize(command, *flags, env: {}, **)
      super(command, *flags, env: EcosystemTest::BUNDLE.merge(env), **)
    end

    private

    def make(_) = FileUtils.cp_r(File.join(self.class.template, "."), @directory)
  end

  # The base of the tests with that app.
  class StockAppTest < EcosystemTest
    # Starts it and waits until it serves; it is stopped when the test ends.
    def stock_app(...) = of_this_test(StockServer.new(...)).start.wait_until_ready
  end
end
