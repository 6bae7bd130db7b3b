# frozen_string_literal: true

require "json"
require_relative "../helper"

module Fairlead
  # A small, real Rails app in a folder of its own, served by a real command: `bin/rails server`, `rackup` or
  # `fairlead`. Its bundle is the repository's, with Puma in it.
  class RailsServer < ServerProcess
    GEMFILE = File.join(ROOT, "Gemfile")

    COMMANDS = {
      rails: ["bin/rails", "server", "-b", "127.0.0.1", "-p", "0"],
      rackup: [Gem.bin_path("rackup", "rackup"), "-s", "fairlead", "-o", "127.0.0.1", "-p", "0"],
      fairlead: [File.join(ROOT, "exe/fairlead"), "-b", "http://127.0.0.1:0"]
    }.freeze

    # @param command [Symbol] of {COMMANDS}.
    # @param flags [Array<String>] further flags of it.
    # @param environment [String] Rails' environment.
    # @param database [String, nil] the URL of a PostgreSQL server; nil: SQLite.
    def initialize(command, *flags, environment: "production", database: nil, env: {}, files: {}, **options)
      @command = COMMANDS.fetch(command) + flags
      variables = {
        "RAILS_ENV" => environment, "BUNDLE_GEMFILE" => GEMFILE, "DATABASE_URL" => database,
        "SECRET_KEY_BASE" => "0" * 64, "FAIRLEAD_WORKERS" => nil
      }
      super(nil, env: variables.merge(env), **options)
      make(database)
      files.each { |path, text| write(path, text) }
      # Rails looks for the newest file: what a test changes later has to be newer than these, and not in the future.
      old = Time.now - 3600
      Dir[path("**/*.rb")].each { |file| File.utime(old, old, file) }
    end

    def start
      @notifications = Socket.new(:UNIX, :DGRAM)
      @notifications.bind(Socket.sockaddr_un(path("notify.sock")))
      @seen = []
      @log = File.open(path("output.log"), "a")
      @pid = spawn_ruby(*@command, out: @log, "NOTIFY_SOCKET" => path("notify.sock"))
      self
    end

    # Runs a command of the app to its end.
    #
    # @return [String] what it wrote.
    def run(*command)
      IO.popen(CLEAN.merge(@env), [RbConfig.ruby, *command], chdir: @directory, err: %i[child out], &:read)
    end

    # @return [Object] the JSON answer to a GET.
    def json(path)
      response = get(path)
      raise "GET #{path}: #{response.code}\n#{response.body[0, 2000]}\n#{log}" unless response.is_a?(Net::HTTPOK)

      JSON.parse(response.body)
    end

    # Sends all requests at once, each on a connection of its own, and returns their JSON answers.
    def json_at_once(*paths)
      paths.map { |path| Thread.new { json(path) } }.map(&:value)
    end

    private

    # The app, in its folder.
    def make(database)
      APP.each { |path, text| write(path, text) }
      File.chmod(0o755, path("bin/rails"))
      make_table(database)
    end

    def spawn_ruby(*command, out:, **variables)
      Process.spawn(CLEAN.merge(STACKS, @env, variables), RbConfig.ruby, *@ruby_flags, *command,
                    chdir: @directory, in: File::NULL, out:, err: out, **@spawn_options)
    end

    def make_table(database)
      return make_table_in_sqlite unless database

      require "pg"
      PG.connect(database) do |connection|
        connection.exec("SET client_min_messages TO warning")
        connection.exec("CREATE TABLE IF NOT EXISTS items (id serial PRIMARY KEY, name text)")
        connection.exec("TRUNCATE items RESTART IDENTITY")
        connection.exec("INSERT INTO items (name) SELECT 'item ' || n FROM generate_series(1, 10) n")
      end
    end

    def make_table_in_sqlite
      require "sqlite3"
      SQLite3::Database.new(path("test.sqlite3")) do |connection|
        connection.execute("CREATE TABLE items (id integer PRIMARY KEY, name text)")
        10.times { |n| connection.execute("INSERT INTO items (name) VALUES (?)", ["item #{n + 1}"]) }
      end
    end

    APP = {
      "config.ru" => <<~RUBY,
        require_relative "config/environment"
        require "rack/lint"
        use Rack::Lint
        # Outside of Rails, where reloading stops nobody.
        map "/in_flight" do
          run ->(_) { [200, {}, [Fairlead.stats[:workers].sum { |worker| worker[:in_flight] }.to_s]] }
        end
        run Rails.application
      RUBY

      "bin/rails" => <<~RUBY,
        #!/usr/bin/env ruby
        APP_PATH = File.expand_path("../config/application", __dir__)
        require_relative "../config/boot"
        require "rails/commands"
      RUBY

      "config/boot.rb" => <<~RUBY,
        require "bundler/setup"
      RUBY

      "config/application.rb" => <<~RUBY,
        require_relative "boot"
        require "rails"
        require "active_model/railtie"
        require "active_record/railtie"
        require "action_controller/railtie"
        require "action_view/railtie"
        Bundler.require(*Rails.groups)

        class TestApp < Rails::Application
          config.load_defaults Rails::VERSION::STRING.to_f
          config.hosts.clear
          config.consider_all_requests_local = true
        end
      RUBY

      "config/environment.rb" => <<~RUBY,
        require_relative "application"
        Rails.application.initialize!
      RUBY

      "config/environments/development.rb" => <<~RUBY,
        Rails.application.configure do
          config.enable_reloading = true
          config.eager_load = false
        end
      RUBY

      "config/environments/production.rb" => <<~RUBY,
        Rails.application.configure do
          config.enable_reloading = false
          config.eager_load = true
          config.logger = ActiveSupport::Logger.new($stdout, level: :warn)
        end
      RUBY

      "config/environments/test.rb" => <<~RUBY,
        Rails.application.configure do
          config.enable_reloading = false
          config.eager_load = false
        end
      RUBY

      # The first that an app could ask whether it is served.
      "config/initializers/serving.rb" => <<~RUBY,
        SERVING_IN_INITIALIZER = Fairlead.serving?
      RUBY

      "config/database.yml" => <<~YAML,
        default: &default
          adapter: sqlite3
          database: test.sqlite3
          pool: 20
          checkout_timeout: 10
        development:
          <<: *default
        production:
          <<: *default
        test:
          <<: *default
      YAML

      "config/routes.rb" => <<~RUBY,
        Rails.application.routes.draw do
          %w[about state stat query keep begin_and_forget reload enumerator file interrupted depth goes_on].each do |action|
            get action, to: "probes#\#{action}"
          end
          get :live, to: "lives#events"
          get :endless, to: "lives#endless"
          get :slow, to: "slow#show"
          post :upload, to: "probes#upload"
        end
      RUBY

      "app/models/item.rb" => <<~RUBY,
        class Item < ActiveRecord::Base
        end
      RUBY

      "app/models/current.rb" => <<~RUBY,
        class Current < ActiveSupport::CurrentAttributes
          attribute :number
        end
      RUBY

      "app/models/version.rb" => <<~RUBY,
        class Version
          NUMBER = 1
        end
      RUBY

      "config/locales/de.yml" => <<~YAML,
        de:
          hello: Hallo
      YAML

      "app/controllers/lives_controller.rb" => <<~RUBY,
        class LivesController < ActionController::Base
          include ActionController::Live
          before_action { Current.number = params[:number].to_i }

          BEGUN = Thread::Queue.new
          ALL_HAVE_BEGUN = Thread::Queue.new

          def events
            response.headers["Content-Type"] = "text/event-stream"
            events = SSE.new(response.stream)
            3.times do |n|
              events.write({ n:, number: Current.number, item: Item.find(n + 1).name }, event: "tick")
              await_others if n.zero? && params[:together]
            end
          ensure
            response.stream.close
          end

          def endless
            response.headers["Content-Type"] = "text/event-stream"
            loop do
              response.stream.write("data: again\\n\\n")
              sleep 0.02
            end
          rescue ClientDisconnected
            File.write("disconnected", Current.number.to_s)
          ensure
            response.stream.close
          end

          private

          # No stream goes on before so many have begun.
          def await_others
            BEGUN.push(Current.number)
            ALL_HAVE_BEGUN.close if BEGUN.size == params[:together].to_i
            ALL_HAVE_BEGUN.pop
          end
        end
      RUBY

      "app/views/probes/_level.html.erb" => <<~HTML,
        <%= render("probes/level", levels: levels - 1) if levels > 1 %>
      HTML

      "app/controllers/probes_controller.rb" => <<~RUBY
        class ProbesController < ActionController::Base
          skip_forgery_protection

          def about
            render json: {
              serving: Fairlead.serving?, serving_in_initializer: SERVING_IN_INITIALIZER, pid: Process.pid,
              parent: Process.ppid, isolation: ActiveSupport::IsolatedExecutionState.isolation_level,
              environment: Rails.env, task: defined?(Async::Task) && !Async::Task.current?.nil?, software: request.env["SERVER_SOFTWARE"]
            }
          end

          # What is found of others, and what is found again of one's own after waiting.
          def state
            found = seen
            number = params[:number].to_i
            Current.number = Thread.current[:number] = Fiber[:number] = number
            I18n.locale = number.even? ? :en : :de
            sleep 0.01
            id = Item.where(id: 1 + (number % 10)).pick(:id)
            sleep 0.01
            render json: { found:, kept: seen, id: }
          end

          def query
            Item.connection_pool.with_connection do |connection|
              pause = connection.adapter_name == "PostgreSQL" ? "SELECT pg_sleep(0.02)" : "SELECT 1"
              connection.select_value(pause)
            end
            render json: Item.find(1 + (params[:number].to_i % 10))
          end

          def stat = render(json: Item.connection_pool.stat)

          def keep
            Item.lease_connection
            head :ok
          end

          def begin_and_forget
            connection = Item.lease_connection
            connection.begin_transaction
            Item.create!(name: "never committed")
            head :ok
          end

          def reload
            before = Version
            sleep params.fetch(:wait, 0).to_f
            sleep 0.01 until params[:until].nil? || File.exist?(params[:until])
            # Unloaded under us, this would be another class.
            render json: { version: Version::NUMBER, steady: Version.equal?(before) }
          end

          def enumerator
            self.response_body = Enumerator.new { |lines| 3.times { |n| lines << "line \#{n}\\n"; sleep 0.01 } }
          end

          def file = send_file(Rails.root.join("config.ru").to_s)

          def upload
            render json: { name: params[:file].original_filename, size: params[:file].read.bytesize }
          end

          # A partial that renders itself.
          def depth = render(partial: "probes/level", locals: { levels: params[:levels].to_i })

          private

          def seen
            [Current.number, Thread.current[:number], Fiber[:number], I18n.locale.to_s]
          end
        end
      RUBY
    }.freeze
    private_constant :APP
  end

  # The base of the tests with a Rails app.
  class RailsTest < Test
    # A Rails app whose server has not been started yet; it is gone when the test ends. See RailsServer.
    def rails_app(...) = of_this_test(RailsServer.new(...))

    # Starts a Rails app and waits until it serves.
    def rails(command, *flags, ready: true, **options)
      server = rails_app(command, *flags, **options).start
      ready ? server.wait_until_ready : server
    end

    # One for all tests of the class.
    def shared_rails(*arguments, name: :server, **options)
      shared(name) { RailsServer.new(*arguments, **options) }
    end

    # @return [String] where the tests' PostgreSQL is; bin/services start says.
    def postgresql
      ENV.fetch("TEST_DATABASE_URL")
    end
  end
end
