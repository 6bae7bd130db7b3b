# frozen_string_literal: true

require_relative "helper"
require_relative "browser"
require_relative "demo_process"
require_relative "drivers/databases"
require "json"

module Fairlead
  # The demo as its user meets it: started by bin/demo, looked at with a real browser.
  class DemoTest < Test
    needs :database, :browser

    class << self
      # One demo for all these tests.
      def demo
        @demo ||= DemoProcess.new.tap { |demo| Minitest.after_run { demo.finish } }
      end
    end

    def setup
      eventually("the demo's start", within: 300) { demo.ready? }
    end

    def teardown
      @page&.close
      super
    end

    def test_the_start_page_shows_what_each_worker_does
      visit

      assert_operator page.evaluate('document.querySelectorAll(".worker").length'), :>=, 2
      assert_match(/\A\d+\z/, text_of("#in-flight"))
      assert_match(/Worker 0.*serving/m, text_of(".worker"))
      assert_match(/served by .*fairlead/i, text_of("footer"))
    end

    def test_a_click_fires_fifty_sleeps_that_take_as_long_as_one
      assert_finished_below 15, "sleep"

      assert_equal 50, page.css("[data-kind=sleep] .columns .done").size
      assert_match(/fastest .*median .*slowest .*all done after/, caption("sleep"))
      assert_match(/50 requests, by \d workers?; one after the other: 25\.0 s/, caption("sleep"))
    end

    def test_the_page_sees_the_requests_in_flight
      visit
      click "sleep", seconds: 10
      eventually("the page shows forty requests in flight") { in_flight.min >= 40 }
      await "sleep"
    end

    def test_every_button_brings_fifty_answers
      visit
      kinds = page.css(".kind").map { |row| row.attribute("data-kind") }

      assert_equal %w[cpu cwork_with_gvl cwork_without_gvl find plain remote_io sleep slow_sql], kinds.sort
      kinds.each do |kind|
        fire kind, seconds: 0.01

        assert_equal 50, page.css("[data-kind=#{kind}] .columns .done").size, "#{kind}: #{caption(kind)}"
      end
    end

    def test_fifty_remote_requests_wait_together = assert_finished_below(15, "remote_io")

    def test_a_thousand_streams_run_beside_pages
      visit
      press "#beside-start"
      eventually("the end of the run (#{text_of("#beside-result")})", within: 90) { page.at_css("#beside[data-finished]") }

      assert_match(/Pages alone: median .+, p99 .+\. Beside 1,000 streams: median .+, p99 .+, [1-9][\d,]+ tokens per second\./,
        text_of("#beside-result"))
      assert_equal "1,000", text_of("#beside-streams")
      assert_match(/\A[1-9][\d,]*\z/, text_of("#beside-tokens"))
      assert_equal [2, 1], %w[latency token].map { |name| page.css("##{name}-trace path").size }
    end

    def test_puma_is_shown_with_measured_figures_only
      Dir.mktmpdir do |folder|
        report = File.join(folder, "report.json")
        demo = DemoProcess.new("--workers", "1", env: { "DEMO_STREAMS_REPORT" => report })
        eventually("the demo's start", within: 300) { demo.ready? }

        assert_includes demo.get("").body, "This checkout has no figures yet. <code>bin/bench streams-beside-pages</code>"
        File.write(report, JSON.generate(date: "2026-11-26T20:30:39Z", loads: [{ name: "1000", summary: {
          "puma:3" => { alone_p99: { median: 4.04 }, p99: { median: 2_000.44 }, streams: { median: 3 } },
          "falcon" => { p99: { median: 5 } }
        } }]))
        rows = demo.get("").body.force_encoding("UTF-8")[%r{<table id="measured">.*</table>}m].scan(%r{<t[hd]>(.*?)</t[hd]>}).flatten

        assert_equal ["puma:3", "4.0 ms", "2,000.4 ms", "3", "–"], rows.last(5)
        refute_includes rows, "falcon"
      ensure
        demo&.finish
      end
    end

    def test_an_upload_a_download_and_events_reach_the_page
      visit
      page.at_css("#upload input[type=file]").select_file(File.expand_path(__FILE__))
      press "#upload button"
      size = File.size(__FILE__).to_s.gsub(/(?<=\d)(?=(\d{3})+\z)/, ",")
      eventually("the upload's answer") { text_of("#upload-result").start_with?("#{size} bytes") }

      press "#download"
      eventually("the end of the download") do
        text_of("#download-result").start_with?("10,240,000 bytes")
      end

      press "#events"
      eventually("ten events") { text_of("#events-result").end_with?("all 10 received") }
    end

    def test_events_come_one_by_one
      arrived = []
      Net::HTTP.start("127.0.0.1", demo.port) do |http|
        http.request_get("/events?duration=1") { |answer| answer.read_body { arrived << monotonic } }
      end

      assert_operator arrived.size, :>=, 10
      assert_includes 0.5..5, arrived.last - arrived.first
    end

    def test_the_page_fits_a_phone
      page.command("Emulation.setDeviceMetricsOverride", width: 360, height: 740, deviceScaleFactor: 2,
        mobile: true)
      visit

      assert_equal 360, page.evaluate("document.documentElement.scrollWidth")
    end

    def test_the_page_loads_nothing_from_elsewhere
      visit

      elsewhere = page.network.traffic.map(&:url).reject { |url| url.start_with?(demo.address) }

      assert_empty elsewhere
    end

    def test_a_duration_out_of_bounds_is_refused_with_a_reason
      assert_equal "400", demo.get("sleep", duration: 11).code
      assert_equal "duration=soon: give seconds from 0 to 10.\n", demo.get("sleep", duration: "soon").body
    end

    def test_slow_sql_says_what_it_does_on_sqlite
      answer = JSON.parse(demo.get("slow_sql", duration: 0.1).body)

      assert_match(/SQLite has no sleep/, answer["how"])
    end

    def test_slow_sql_asks_postgresql_to_sleep_with_its_address_in_database_url
      with_postgresql { |url| assert_sleeps_in_database(/PostgreSQL ran SELECT pg_sleep/, url) }
    end

    def test_slow_sql_asks_mysql_to_sleep_by_either_driver
      with_mysql do |url|
        %w[mysql trilogy].each { |scheme| assert_sleeps_in_database(/MySQL ran SELECT SLEEP/, url.sub("mysql2", scheme)) }
      end
    end

    def test_it_says_where_it_serves
      line = /^  addresses  #{Regexp.escape(demo.address.chomp("/"))}$/
      eventually("the log has the address") { demo.log.match?(line) } # its workers answer before the line is written
    end

    def test_where_its_usual_port_is_taken_it_takes_the_next_one_that_is_free
      taken = begin
        TCPServer.new("127.0.0.1", 9292)
      rescue Errno::EADDRINUSE
        nil # by somebody else
      end
      demo = DemoProcess.new("--workers", "1", env: { "PORT" => nil })
      eventually("the demo's start", within: 300) { demo.ready? }

      assert_includes 9293.., demo.port
      assert_equal "200", demo.get("plain").code
    ensure
      taken&.close
      demo&.finish
    end

    def test_control_c_ends_the_demo_and_its_remote_server
      demo = DemoProcess.new("--workers", "1")
      eventually("the demo's start", within: 300) { demo.ready? }

      assert_equal "200", demo.get("remote_io", duration: 0).code
      remotes = remote_servers_of(demo)

      assert_equal 1, remotes.size
      open_page = TCPSocket.new("127.0.0.1", demo.port)
      open_page.write("GET /status/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
      open_page.readpartial(10) # it is being served
      demo.interrupt
      eventually("the end of the demo") { demo.ended? }
      eventually("the end of its remote server") { remotes.none? { |pid| File.exist?("/proc/#{pid}") } }

      assert_equal 0, demo.status.exitstatus, demo.log
    ensure
      open_page&.close
      demo&.finish
    end

    private

    def demo = self.class.demo

    def page = @page ||= Browser.page

    # Once the figures are there the page is still, and a click meets what it is meant for.
    def visit
      page.go_to(demo.address)
      eventually("the live figures") { text_of("#live") == "live" }
    end

    # In one go: the page replaces its nodes while it is looked at.
    def text_of(selector) = page.evaluate("document.querySelector(#{selector.to_json}).textContent")

    def click(kind, seconds:)
      page.evaluate(<<~SCRIPT)
        Object.assign(document.querySelector("[data-kind=#{kind}] input"), { value: "#{seconds}" })
          .dispatchEvent(new Event("input"))
      SCRIPT
      press "[data-kind=#{kind}] button"
    end

    # As a user does: the mouse needs it in view.
    def press(selector) = page.at_css(selector).scroll_into_view.click

    def fire(kind, seconds:)
      click(kind, seconds:)
      await(kind)
    end

    # Fifty of half a second each: 25 s, one after the other.
    def assert_finished_below(limit, kind)
      visit
      fire kind, seconds: 0.5
      assert_operator finished(kind), :<, limit
    end

    def await(kind)
      eventually("the end of fifty times #{kind} (#{caption(kind)})", within: 60) { finished(kind) }
    end

    # @return [Array(Integer, Integer)] the requests that the page counts, and those that it shows as dots.
    def in_flight
      page.evaluate('[parseInt(document.querySelector("#in-flight").textContent),
                      document.querySelectorAll(".worker .dots i").length]')
    end

    # Seconds that all fifty took together; nil before the end.
    def finished(kind) = page.evaluate("document.querySelector('[data-kind=#{kind}]').dataset.finished")&.to_f

    def caption(kind) = page.evaluate("document.querySelector('[data-kind=#{kind}] figcaption').innerText").tr("\n", " ")

    def assert_sleeps_in_database(pattern, url)
      demo = DemoProcess.new("--workers", "1", env: { "DATABASE_URL" => url })
      eventually("the demo's start", within: 300) { demo.ready? }
      answer = nil
      took = duration { answer = JSON.parse(demo.get("slow_sql", duration: 0.3).body) }

      assert_match(pattern, answer["how"])
      assert_operator took, :>=, 0.3
      assert_equal 7, JSON.parse(demo.get("find", id: 7).body)["id"]
    ensure
      demo&.finish
    end

    # A database of its own on the tests' PostgreSQL.
    def with_postgresql
      require "pg"
      address = Databases.postgresql
      server = PG.connect(address)
      server.exec("CREATE DATABASE #{name_of_database}")
      yield at_database(address)
    ensure
      server&.exec("DROP DATABASE IF EXISTS #{name_of_database} WITH (FORCE)")
      server&.close
    end

    # The same on the tests' MariaDB.
    def with_mysql
      require "mysql2"
      address = Databases.mariadb
      server = Mysql2::Client.new(Databases.mariadb_settings)
      server.query("CREATE DATABASE #{name_of_database}")
      yield at_database(address)
    ensure
      server&.query("DROP DATABASE IF EXISTS #{name_of_database}")
      server&.close
    end

    def name_of_database = "demo_#{Process.pid}"

    def at_database(address) = URI(address).tap { |uri| uri.path = "/#{name_of_database}" }.to_s

    # They are known by the process group that they share with the demo.
    def remote_servers_of(demo)
      Dir["/proc/[0-9]*"].filter_map do |folder|
        next unless File.read("#{folder}/cmdline").include?("lib/remote_server.rb")

        pid = File.basename(folder).to_i
        pid if Process.getpgid(pid) == demo.pid
      rescue SystemCallError
        nil
      end
    end
  end
end
