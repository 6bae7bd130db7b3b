# frozen_string_literal: true

require_relative "ecosystem"
require_relative "../browser"

module Fairlead
  # Turbo Streams over server-sent events: <turbo-stream-source> in Chromium, whose EventSource comes back by itself.
  class TurboStreamsTest < EcosystemTest
    needs :browser

    APP = <<~'RUBY'
      require "rails"
      require "action_controller/railtie"
      require "action_view/railtie"
      require "turbo-rails"
      require "fairlead"

      PAGE = <<~HTML
        <!DOCTYPE html><title>News</title>
        <script type="module" src="/turbo.js"></script>
        <turbo-stream-source src="/news"></turbo-stream-source>
        <ol id="news"></ol>
      HTML

      TURBO = Turbo::Engine.root.join("app/assets/javascripts/turbo.js")

      class PagesController < ActionController::Base
        def show = render(html: PAGE.html_safe)
      end

      # Each piece of news is a file. Who has heard one gets those after it.
      class NewsController < ActionController::Base
        include ActionController::Live

        def index
          response.headers["content-type"] = "text/event-stream"
          events = SSE.new(response.stream, retry: 50)
          heard = request.headers["Last-Event-ID"].to_i
          (heard + 1..).each do |n|
            sleep 0.02 until File.exist?("news-#{n}")
            item = "<li>#{n} after #{heard}</li>".html_safe
            events.write(turbo_stream.append("news", item), id: n)
          end
        ensure
          response.stream.close
        end
      end

      class App < Rails::Application
        config.load_defaults 8.1
        config.eager_load = false
        config.secret_key_base = "x" * 64
        config.hosts.clear
        config.logger = Logger.new(File::NULL)
        routes.append do
          root "pages#show"
          get "/turbo.js", to: ->(_) { [200, { "content-type" => "text/javascript" }, [TURBO.read]] }
          get "/news", to: "news#index"
        end
      end
      App.initialize!
      run App
    RUBY

    def teardown
      @page&.close
      super
    end

    def test_a_page_gets_each_piece_of_news_once_also_when_its_worker_has_been_killed_or_restarted
      server = with_server(APP, "-e", "production", "-w", "2", "--drain-timeout", "1", lint: false)
      @page = Browser.page
      @page.go_to(server.address)
      publish(server, 1)
      await_news("1 after 0")
      publish(server, 2)
      await_news("1 after 0", "2 after 0")

      server.worker_pids.each { |pid| Process.kill(:KILL, pid) }
      publish(server, 3)
      await_news("1 after 0", "2 after 0", "3 after 2")

      before = server.worker_pids
      server.restart
      eventually("the end of the stream in the worker before") { (server.worker_pids & before).empty? }
      publish(server, 4)
      await_news("1 after 0", "2 after 0", "3 after 2", "4 after 3")
    end

    private

    def publish(server, number) = server.write("news-#{number}", "")

    def await_news(*wanted) = eventually(wanted.last) { @page.evaluate("[...document.querySelectorAll('#news li')].map(line => line.textContent)") == wanted }
  end
end
