# frozen_string_literal: true

require "json"
require_relative "../stalls"
require_relative "ecosystem"

module Fairlead
  # The frameworks beside Rails: each greets, reads a form, waits beside others, and streams.
  # Covers integrations/integrations.rb
  class FrameworksTest < EcosystemTest
    include Stalls

    SINATRA = <<~'RUBY'
      require "sinatra/base"

      class Greeter < Sinatra::Base
        set :environment, :production
        set :host_authorization, { permitted_hosts: [] }

        get("/hello/:name") { "Hello, #{params[:name]}" }
        post("/hello") { "Hello, #{params[:name]}" }
        get("/wait") { sleep 0.01 while File.exist?("gate"); "waited" }
        get("/fail") { raise "on purpose" }
        get "/stream" do
          content_type "text/plain"
          stream { |out| 3.times { |n| out << "part #{n}\n"; sleep 0.01 } }
        end
      end

      run Greeter
    RUBY

    RODA = <<~'RUBY'
      require "roda"

      class Greeter < Roda
        plugin :streaming
        plugin(:error_handler) { |error| response.status = 500; "failed" }
        route do |r|
          r.get("hello", String) { |name| "Hello, #{name}" }
          r.post("hello") { "Hello, #{r.params["name"]}" }
          r.get("wait") { sleep 0.01 while File.exist?("gate"); "waited" }
          r.get("fail") { raise "on purpose" }
          r.get("stream") { stream { |out| 3.times { |n| out << "part #{n}\n"; sleep 0.01 } } }
        end
      end

      run Greeter.freeze.app
    RUBY

    GRAPE = <<~'RUBY'
      require "grape"

      class Greeter < Grape::API
        content_type :txt, "text/plain"
        default_format :txt
        rescue_from(:all) { error!("failed", 500) }

        get("/hello/:name") { "Hello, #{params[:name]}" }
        post("/hello") { "Hello, #{params[:name]}" }
        get("/wait") { sleep 0.01 while File.exist?("gate"); "waited" }
        get("/fail") { raise "on purpose" }
        get("/stream") { stream Enumerator.new { |out| 3.times { |n| out << "part #{n}\n"; sleep 0.01 } } }
      end

      run Greeter
    RUBY

    HANAMI = {
      "public/404.html" => "Nothing here",
      "public/500.html" => "Failed",
      "config/app.rb" => <<~'RUBY',
        require "hanami"

        module Greeter
          class App < Hanami::App
            config.logger.stream = File::NULL
          end
        end
      RUBY
      "config/routes.rb" => <<~'RUBY',
        module Greeter
          class Routes < Hanami::Routes
            get "/hello/:name", to: "greet"
            post "/hello", to: "greet"
            get "/wait", to: "wait"
            get "/fail", to: "fail"
            # An action's body is a string.
            get "/stream", to: ->(_) { [200, {}, Enumerator.new { |out| 3.times { |n| out << "part #{n}\n"; sleep 0.01 } }] }
          end
        end
      RUBY
      "app/action.rb" => <<~'RUBY',
        require "hanami/action"

        module Greeter
          class Action < Hanami::Action
            handle_exception StandardError => 500
          end
        end
      RUBY
      **{ greet: 'response.body = "Hello, #{request.params[:name]}"',
          wait: 'sleep 0.01 while File.exist?("gate"); response.body = "waited"',
          fail: 'raise "on purpose"'
      }.to_h do |name, text|
        ["app/actions/#{name}.rb", <<~RUBY]
          module Greeter::Actions
            class #{name.capitalize} < Greeter::Action
              def handle(request, response)
                #{text}
              end
            end
          end
        RUBY
      end
    }.freeze

    def test_sinatra = assert_serves(SINATRA)

    def test_roda = assert_serves(RODA)

    def test_grape = assert_serves(GRAPE)

    def test_hanami
      app = <<~'RUBY'
        require "hanami/boot"
        # Hanami's own pages for errors have headers with capitals, which Rack::Lint refuses.
        run ->(env) { Hanami.app.call(env).then { |status, headers, body| [status, headers.transform_keys(&:downcase), body] } }
      RUBY
      assert_serves(app, files: HANAMI, env: { "HANAMI_ENV" => "production" })
    end

    private

    def assert_serves(app, **)
      with_server(app, **) do |server|
        assert_equal "Hello, Ada", server.get("/hello/Ada").body
        form = { "content-type" => "application/x-www-form-urlencoded" }
        assert_equal "Hello, Ada", server.post("/hello", "name=Ada", form).body
        assert_equal "404", server.get("/nowhere").code
        assert_equal "500", server.get("/fail").code
        assert_equal "part 0\npart 1\npart 2\n", server.get("/stream").body
        assert_each_equal "waited", waits_at_once(server), server
      end
    end

    def waits_at_once(server)
      asking = while_the_gate_is_closed(server) do
        threads = Array.new(40) { Thread.new { server.get("/wait").body } }
        eventually("all forty wait") { figures_of(server, server.worker_pids.first)[:in_flight] == 40 }
        threads
      end
      asking.map(&:value)
    end
  end
end
