# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../scraping"

module Fairlead
  # What the metrics say, as Prometheus reads them.
  #
  # Covers observer/metrics_endpoint.rb, observer/server_status.rb
  class MetricsTest < Test
    include Scraping
    needs :database

    APP = <<~'RUBY'
      require "active_record"
      ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL") + "?pool=2")

      run(lambda do |env|
        case env["PATH_INFO"]
        when "/error" then raise "on purpose"
        when "/missing" then [404, {}, []]
        when "/database" then [200, {}, [ActiveRecord::Base.with_connection { |connection| connection.select_value("SELECT 1").to_s }]]
        when "/samples"
          page = Fairlead.page
          begin # a worker may still count
            routes = page.route_times
            text = +""
            %i[requests errors service kinds].each { |figure| page.public_send(:"add_route_#{figure}", text, figure.to_s) }
          end until routes == page.route_times
          [200, {}, [JSON.generate(text:, routes:)]]
        when "/pid" then [200, {}, [Process.pid.to_s]]
        else [200, {}, ["served"]]
        end
      end)
    RUBY
    EXAMPLES = File.join(ROOT, "examples/observability")
    CODES = { "/articles/1" => 200, "/articles/2" => 200, "/missing" => 404, "/error" => 500, "/database" => 200 }.freeze
    private_constant :APP, :EXAMPLES, :CODES

    # A server of its own: what was asked of another may not be counted yet.
    def test_counters_tell_what_has_been_asked
      with_server(APP, "-w", "2", *metrics, env: database) do |server|
        CODES.each { |path, code| assert_equal code.to_s, server.get(path).code }
        # Each row of the page is written by itself.
        last = %w[fairlead_requests_total fairlead_request_queue_seconds_count fairlead_request_service_seconds_count fairlead_request_errors_total]
        now = eventually("the last one counts") { figures(server).then { |seen| seen if seen.values_at(*last) == [5, 5, 5, 1] } }

        assert_equal({ "2xx" => 3.0, "4xx" => 1.0, "5xx" => 1.0 }, now.filter_map { |name, value|
          [name[/\Afairlead_responses_total{code="(\w+)"}/, 1], value] if name.start_with?("fairlead_responses_total") && value.positive?
        }.to_h)
        %w[queue service].each do |kind|
          assert_equal [5, 5], now.values_at("fairlead_request_#{kind}_seconds_count", "fairlead_request_#{kind}_seconds_bucket{le=\"+Inf\"}")
        end
        assert_equal 2, now["fairlead_route_requests_total{route=\"GET /articles/:id\"}"]
        assert_equal 1, now["fairlead_route_errors_total{route=\"GET /error\"}"]
      end
    end

    # The page writes them itself.
    def test_samples_of_routes_are_those_of_any_other_family
      CODES.each_key { |path| server.get(path) }
      # The other worker may still count the last one when it is answered.
      found = eventually("all routes") do
        JSON.parse(server.get("/samples").body, symbolize_names: true).then { |now| now if now[:routes].size >= 4 }
      end
      rows = found[:routes].to_h { |row| [{ route: row[:route] }, row] }
      expected = Exposition.new
      expected.counter("requests", "", rows.transform_values { |row| row[:count] })
      expected.counter("errors", "", rows.transform_values { |row| row[:errors] })
      expected.histogram("service", "", SharedPage::BOUNDS, rows.transform_values { |row| row[:service] })
      expected.counter("kinds", "", rows.flat_map { |labels, row| row[:kinds].map { |kind, seconds| [{ **labels, kind: }, seconds] } })

      assert_equal parse(expected.to_s).reject { |name, value| name.start_with?("kinds") && value.zero? }, parse(found[:text])
    end

    def test_gauges_tell_what_is_there
      server.get("/database")
      eventually("the pool is reported") { figures(server)["fairlead_database_pool_size#{pool}"] == 4 }
      now = eventually("the pool has opened a connection") do
        figures(server).then { |seen| seen if seen["fairlead_database_pool_connections#{pool("state=\"idle\"")}"].to_f >= 1 }
      end

      assert_equal 2, now["fairlead_workers{kind=\"regular\",state=\"serving\"}"]
      assert_operator now["fairlead_gc_runs_total"], :>, 0
      assert_operator now["fairlead_gc_seconds_total"], :>, 0
      assert_equal 0, now["fairlead_database_pool_timeouts_total#{pool}"]
      ["init", "supervisor", "observer", "worker 0", "worker 1"].each do |name|
        eventually(name) { figures(server)["fairlead_process_resident_memory_bytes{process=\"#{name}\"}"].to_f > 5_000_000 }
      end
    end

    def test_descriptors_of_workers_come_with_their_limit
      limit = Process.getrlimit(:NOFILE).last
      now = figures(server)

      %w[0 1].each do |number|
        process = "{process=\"worker #{number}\"}"
        assert_equal limit, now["fairlead_process_max_fds#{process}"]
        assert_includes 5..1000, now["fairlead_process_open_fds#{process}"]
      end
    end

    # Without one there is no sample.
    def test_the_memory_limit_is_what_the_supervisor_found
      [nil, { used: 3 << 20, limit: 4 << 20 }].each do |memory_limit|
        status = Struct.new(:latest).new({ memory_limit: })
        now = parse(Metrics.new(SharedPage.new(1), status).answer(nil).last)

        assert_equal memory_limit&.values.to_a, now.values_at("fairlead_memory_used_bytes", "fairlead_memory_limit_bytes").compact
      end
    end

    def test_promtool_has_nothing_to_say
      said, status = Open3.capture2e("promtool", "check", "metrics", stdin_data: scrape(server).body)

      assert_equal ["", true], [said, status.success?]
    end

    # Once Prometheus reads OpenMetrics, it takes nothing that is wrong in it.
    def test_open_metrics_end_with_a_mark
      answer = scrape_open_metrics(server)

      assert_equal "application/openmetrics-text; version=1.0.0; charset=utf-8", answer["content-type"]
      assert_match(/^# TYPE fairlead_requests counter\nfairlead_requests_total \d+\n/, answer.body)
      assert answer.body.end_with?("\n# EOF\n")
      # Processes and pools are known after a moment.
      families = [scrape(server), answer].map { |one| parse(one.body).keys.grep_v(/process|pool/) }
      assert_equal(*families)
    end

    def test_a_real_prometheus_reads_them
      prometheus = Prometheus.new(metrics_of(server))
      5.times { server.get("/books/7") }
      # A scrape that takes longer than its quarter of a second leaves a gap.
      { "fairlead_route_requests_total{route=\"GET /books/:id\"}" => "5", "up{job=\"fairlead\"}" => "1",
        "fairlead_route_service_seconds_bucket{route=\"GET /books/:id\",le=\"+Inf\"}" => "5" }.each do |query, value|
        eventually("#{query} is #{value}") { prometheus.query(query) == value }
      end
      dashboard.each { |query| assert_equal "success", prometheus.answer(query)["status"], query }
    ensure
      prometheus&.stop
    end

    def test_dashboard_and_alerts_name_metrics_that_exist
      said, status = Open3.capture2e("promtool", "check", "config", "prometheus.yml", chdir: EXAMPLES)
      alerts = File.read(File.join(EXAMPLES, "alerts.yml")).scan(/\bfairlead_\w+/)
      families = scrape(server).body.scan(/^# TYPE (\S+)/).flatten

      assert_predicate status, :success?, said
      assert_empty alerts.uniq - families - histograms
      assert_equal families.sort, dashboard.join("\n").scan(/\bfairlead_\w+/).uniq.map { |name| name.delete_suffix("_bucket") }.uniq.sort
    end

    # Neither hosts nor methods nor paths, but for a hundred routes.
    def test_clients_cannot_add_labels_without_end
      with_server("run ->(_) { [200, {}, []] }", *metrics, lint: false) do |server|
        server.connect do |socket|
          250.times do |number|
            socket.write("X#{number} /#{"abcdefghij"[number % 10]}#{"klmnopqrst"[number / 10 % 10]}u#{"vwx"[number / 100]} HTTP/1.1\r\n" \
                         "Host: host#{number}.example\r\n#{"Connection: close\r\n" if number == 249}\r\n")
          end
          socket.read
        end
        eventually("all count") { figures(server)["fairlead_responses_total{code=\"2xx\"}"] == 250 }
        text = scrape(server).body

        assert_operator text.scan(/^fairlead_route_requests_total/).size, :<=, 101
        assert_match(/^fairlead_route_requests_total{route="other"} 15\d$/, text)
        refute_match(/host\d/, text)
      end
    end

    def test_the_end_of_a_worker_takes_no_counter_away
      with_server(APP, "-w", "2", *metrics, env: database) do |server|
        50.times { server.get("/") }
        before = eventually("all count") { figures(server).then { |seen| seen if seen["fairlead_requests_total"] == 50 } }
        victims = server.worker_pids.select { |pid| server.title(pid).start_with?("fairlead: worker") }
        victims.each { |pid| Process.kill(:KILL, pid) }
        eventually("both are replaced") { figures(server)["fairlead_worker_failures_total"] == 2 }
        after = figures(server)

        kept = before.keys.grep(/(_total|_bucket|_sum|_count)({|\z)/).grep_v(/database_pool/)
        assert_empty kept.reject { |name| after.fetch(name) >= before[name] }
        eventually("they serve") { figures(server)["fairlead_workers{kind=\"regular\",state=\"serving\"}"] == 2 }
        server.get("/")
        eventually("the next one counts") { figures(server)["fairlead_requests_total"] == 51 }
      end
    end

    def test_a_path_of_the_apps_addresses_needs_a_token
      with_server(APP, "-w", "2", "--metrics", "/metrics", env: { "FAIRLEAD_METRICS_TOKEN" => "secret", **database }) do |server|
        refute_match(/observer/, server.worker_pids.map { |pid| server.title(pid) }.join)
        [{}, { "authorization" => "Bearer wrong" }].each do |headers|
          answer = server.get("/metrics", headers)
          assert_equal ["401", "Bearer, Basic realm=\"Fairlead\"", "Unauthorized\n"], [answer.code, answer["www-authenticate"], answer.body]
        end
        bearer = { "authorization" => "Bearer secret" }
        assert_equal "405", server.post("/metrics", "", bearer).code
        assert_equal "served", server.get("/metrics/other").body
        assert_equal 2, parse(server.get("/metrics", bearer).body)["fairlead_workers{kind=\"regular\",state=\"serving\"}"]
        server.get("/database")
        eventually("it knows the pool") { parse(server.get("/metrics", bearer).body)["fairlead_database_pool_size#{pool}"] == 4 }
      end
    end

    private

    def server = shared { ServerProcess.new(APP, "-w", "2", *metrics, env: database) }

    # @return [Array<String>] its queries, with Grafana's variables filled in.
    def dashboard
      description = JSON.parse(File.read(File.join(EXAMPLES, "grafana-dashboard.json")))
      queries = description["panels"].flat_map { |panel| panel.fetch("targets", []).map { |target| target["expr"] } }
      queries += description.dig("annotations", "list").map { |annotation| annotation["expr"] }
      queries += description.dig("templating", "list").filter_map { |variable| variable["definition"].to_s[/\Alabel_values\((.*), \w+\)\z/, 1] }
      queries.map { |query| query.gsub("$__rate_interval", "1m").gsub(/\$\w+/, ".*") }
    end

    def histograms = %w[queue service].map { |kind| "fairlead_request_#{kind}_seconds_bucket" }

    def metrics = ["--metrics", "http://127.0.0.1:0"]

    def database = { "DATABASE_URL" => ENV.fetch("TEST_DATABASE_URL") }

    def pool(*more) = "{#{["pool=\"primary\"", "role=\"writing\"", "shard=\"default\"", *more].join(",")}}"
  end
end
