# frozen_string_literal: true

require_relative "rails_app"

module Fairlead
  # A stall in a Rails app: instrumentation knows controller and action, and in development the log of its request too.
  # Covers stalls/notification.rb
  class RailsStallsTest < RailsTest
    FILES = {
      "config/initializers/stalls.rb" => <<~RUBY,
        $LOAD_PATH.unshift #{File.join(ROOT, "examples/cwork/lib").inspect}
        require "cwork"
        ActiveSupport::Notifications.subscribe("stall.fairlead") do |name, started, finished, id, payload|
          File.write("events", payload.to_json + "\\n", mode: "a")
        end
      RUBY

      "app/controllers/slow_controller.rb" => <<~RUBY
        class SlowController < ActionController::Base
          def show
            Cwork.without_gvl(0.6)
            head :ok
          end
        end
      RUBY
    }.freeze

    ARTICLES = {
      "config/routes.rb" => <<~RUBY,
        Rails.application.routes.draw do
          resources :articles, only: %i[index new show], param: :slug do
            get :held, on: :member
          end
        end
      RUBY

      "config.ru" => <<~RUBY,
        require_relative "config/environment"
        map("/times") { run ->(_) { [200, {}, [Fairlead.page.route_times.to_json]] } }
        map "/figures" do
          run ->(_) { [200, {}, [Fairlead.stats.to_json]] }
        end
        run Rails.application
      RUBY

      "app/controllers/articles_controller.rb" => <<~RUBY
        class ArticlesController < ActionController::Base
          def index = head(:ok)
          def new = head(:ok)

          def show
            Cwork.without_gvl(0.3)
            Cwork.without_gvl(0.1) while params[:gate] && File.exist?("gate")
            head :ok
          end

          def held
            Cwork.with_gvl(1)
            head :ok
          end
        end
      RUBY
    }.freeze

    def test_the_event_names_controller_action_and_request
      server = rails(:fairlead, "-w", "1", files: FILES)
      server.get("/about") # the first request loads much, which may be a stall of its own
      server.get("/slow?a=b", "X-Request-Id" => "some-request-1")
      event = event_of(server, "/slow")

      assert_equal ["GET", "/slow", "GET /slow", "slow#show", "some-request-1", "blocked"],
                   event.values_at("method", "path", "route", "action", "request_id", "kind")
      assert_match(%r{\Aapp/controllers/slow_controller\.rb:3 in }, event["at"])
      assert_nil event["gem"]
      assert_operator event["seconds"], :>=, 0.25
      assert_equal true, event["standby"]
    end

    def test_in_development_it_is_in_the_log_of_the_app
      server = rails(:fairlead, "-w", "1", environment: "development", files: FILES)
      server.get("/slow") # the first request loads much
      server.get("/slow", "X-Request-Id" => "some-request-2")
      log = nil
      line = eventually("it is in the log") do
        log = File.readlines(server.path("log/development.log"))
        log.find { |text| text.include?("GET /slow (slow#show, request some-request-2) stalled for ") }
      end

      assert_match(%r{app/controllers/slow_controller\.rb:3:in }, log[log.index(line) + 1])
    end

    # Words that differ from request to request tell nothing to who only sees paths: the router knows.
    def test_all_slugs_of_a_route_are_one_route_with_the_name_of_its_action
      server = rails(:fairlead, "-w", "2", files: FILES.merge(ARTICLES))
      gate = server.write("gate", "")
      first = Thread.new { server.get("/articles/my-first-post?gate=1") }
      row = eventually("it is known while it stalls") do
        routes(server).find { |known| known["lane"] == "threads" && known["action"] == "articles#show" }
      end

      assert_equal "GET /articles/:slug", row["route"]
      before = requests_in_lanes(server)
      server.get("/articles/how-to-tie-a-knot")
      eventually("it has run in a lane") { requests_in_lanes(server) > before }
      moved = lane_requests(server) { %w[/articles/new /articles].each { |path| server.get(path) } }
      assert_equal 0, moved if routes(server).size == 1 # a busy machine may make others stall
      File.delete(gate)
      first.join
      assert_equal "GET /articles/:slug", event_of(server, "/articles/my-first-post")["route"]
      assert_equal ["GET /articles/:slug"], routes(server).map { |known| known["route"] }.grep(%r{/articles/(?!new)})

      # It holds the lock: what it is can be told only when it is over.
      server.get("/articles/my-first-post/held")
      eventually("it is known") { routes(server).any? { |known| known["route"] == "GET /articles/:slug/held" } }
      server.get("/articles/how-to-tie-a-knot/held")
      eventually("its lane worker is announced") do
        server.log.include?("run in a worker of their own now: articles#held (GET /articles/:slug/held).")
      end
      # So are their times, also of those that no lane knows.
      eventually("all are counted") do
        counts = server.json("/times").to_h { |row| row.values_at("route", "count") }
        counts.values_at("articles#show", "articles#new", "articles#index", "articles#held") == [2, 1, 1, 2]
      end
    end

    private

    def routes(server) = server.json("/figures")["routes"]

    # @return [Integer] how many requests have run in a lane meanwhile.
    def lane_requests(server)
      before = requests_in_lanes(server)
      yield
      requests_in_lanes(server) - before
    end

    # The figures are shown when a worker comes to rest.
    def requests_in_lanes(server)
      2.times.map { sleep(0.05) and server.json("/figures")["workers"].sum { |worker| worker["lane"]["requests"] } }.max
    end

    # On a busy machine other requests may stall, too.
    def event_of(server, path)
      eventually("it is told") do
        lines = File.exist?(server.path("events")) ? File.readlines(server.path("events")).grep(/\n\z/) : []
        lines.map { |line| JSON.parse(line) }.reverse.find { |event| event.values_at("path", "kind") == [path, "blocked"] }
      end
    end
  end
end
