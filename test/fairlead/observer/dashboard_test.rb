# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../browser"
require_relative "../../scraping"

module Fairlead
  # The page that the observer shows in a browser.
  class DashboardTest < Test
    include Scraping
    needs :browser

    APP = "run ->(env) { sleep(0.01) until env[\"PATH_INFO\"] != \"/wait\" || File.exist?(\"over\"); [200, {}, []] }"
    private_constant :APP

    def server = shared_server(APP, "-w", "2", "-e", "production", "--metrics", "http://127.0.0.1:0")

    def teardown
      @page&.close
      super
    end

    def test_figures_appear_and_change
      3.times { server.get("/articles/1") }
      open_page
      await("the workers") { text("#tables").match?(/^0\s+serving.*^1\s+serving/m) }
      await("the requests so far") { text("#tiles").match?(/[1-9]\d* in all/) }
      first = text("#tiles")[/(\d+) in all/, 1].to_i
      5.times { server.get("/articles/2") }
      await("more of them") { text("#tiles")[/(\d+) in all/, 1].to_i >= first + 5 }
      await("the route") { text("#tables").match?(%r{^GET /articles/:id\s}) }

      assert_includes text("#facts"), "production · Fairlead #{VERSION}"
      await("no problems") { text("#problems") == "No problems." }
      await("that it is live") { text("#state") == "Live" }
      assert_empty @said
    end

    def test_a_request_that_runs_is_counted
      open_page
      server.connect do |socket|
        socket.write("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
        await("it runs") { text("#tiles").match?(/Running\s+1$/) }
        File.write(server.path("over"), "")
        await("it has ended") { text("#tiles").match?(/Running\s+0$/) }
      end
    end

    def test_a_page_that_is_opened_now_shows_the_past
      await("samples") { data["history"]["number"] >= 2 }
      number, columns = data["history"].values_at("number", "columns")
      open_page
      await("curves") { @page.evaluate("document.querySelectorAll('.chart path').length") >= 5 }

      assert_equal number, columns["at"].size
      assert_empty data(after: number)["history"]["columns"]["at"] & columns["at"]
    end

    def test_it_fits_a_phone_in_light_and_dark
      %w[light dark].map do |scheme|
        open_page(width: 390, scheme:)
        await("the figures") { text("#tables").include?("serving") }

        assert_operator @page.evaluate("document.documentElement.scrollWidth"), :<=, 390
        @page.evaluate("getComputedStyle(document.body).backgroundColor")
      end => [light, dark]

      refute_equal light, dark
      assert_empty @said
    end

    def test_what_clients_send_is_text
      server.get("/%3Cimg%20src=x%3E/a")
      open_page
      await("the route") { text("#tables").include?("GET /%3Cimg") || text("#tables").include?("GET /<img") }

      assert_equal 0, @page.evaluate("document.querySelectorAll('main img').length")
      assert_empty @said
    end

    def test_nothing_comes_from_elsewhere
      response = Net::HTTP.get_response(address)
      policy = response["content-security-policy"]

      assert_match(/\Adefault-src 'none'; script-src 'nonce-(\S+)'; style-src 'nonce-\1'; connect-src 'self'; img-src data:;/, policy)
      refute_equal policy, Net::HTTP.get_response(address)["content-security-policy"]
      assert_empty response.body.scan(%r{(?:src|href)="(?!data:)[^"]*"|https?://(?!www\.w3\.org/2000/svg)[^'" ]+})
    end

    def test_a_server_that_has_gone_is_said
      server = of_this_test(ServerProcess.new(APP, "--metrics", "http://127.0.0.1:0")).start.wait_until_ready
      open_page(server)
      await("the figures") { text("#state") == "Live" }
      server.stop

      await("it is said") { text("#state").match?(/^No answer for [\d.]+ (ms|s)$/) }
    end

    private

    def address(server = self.server) = metrics_of(server).tap { |uri| uri.path = "/" }

    def data(after: 0) = JSON.parse(Net::HTTP.get(URI("#{address}data.json?after=#{after}")))

    def open_page(server = self.server, width: 1200, scheme: "light")
      @page&.close
      @said = []
      @page = Browser.page
      @page.command("Log.enable")
      %w[Log.entryAdded Runtime.exceptionThrown Runtime.consoleAPICalled].each { |event| @page.on(event) { |said| @said << said } }
      @page.command("Emulation.setDeviceMetricsOverride", width:, height: 900, deviceScaleFactor: 1, mobile: width < 500)
      @page.command("Emulation.setEmulatedMedia", features: [{ name: "prefers-color-scheme", value: scheme }])
      @page.go_to(address(server).to_s)
    end

    def text(selector) = @page.evaluate("document.querySelector('#{selector}').innerText")

    def await(what, &) = eventually("#{what} on the page", within: 60, &)
  end
end
