# frozen_string_literal: true

require_relative "../../test/helper"
require "ferrum"
require "tmpdir"
require_relative "../harness/cli"

module Bench
  # The page, the README's table and its picture are what the results say, and the page can be read.
  class ReportTest < Minitest::Test
    extend Fairlead::Needs
    needs :browser

    CHROMIUM = ENV["CHROMIUM"] || %w[chromium google-chrome chromium-browser]
      .flat_map { |name| ENV.fetch("PATH").split(":").map { |folder| File.join(folder, name) } }
      .find { |path| File.executable?(path) }
    FLAGS = %w[no-sandbox disable-gpu no-first-run disable-background-networking disable-component-update
               disable-sync disable-dev-shm-usage].to_h { |flag| [flag, nil] }.freeze
    ADDRESS = "file://#{File.join(Toolchain::ROOT, Report::PAGE)}".freeze

    # Of each chart: its kind, its workload, and those colours of its figures that are to be seen. Those that are folded away
    # have no size to be drawn at.
    CHARTS = <<~JAVASCRIPT
      (() => {
        const descriptions = JSON.parse(document.getElementById("data").textContent);
        const pixel = (color) => parseInt(`ff${color.match(/\\w\\w/g).reverse().join("")}`, 16);
        return [...document.querySelectorAll("canvas")].filter((canvas) => canvas.offsetWidth > 0).map((canvas) => {
          const image = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          const pixels = new Set(new Uint32Array(image.data.buffer));
          const colors = new Set(Chart.getChart(canvas).data.datasets.flatMap((dataset) => dataset.backgroundColor));
          return { kind: descriptions[canvas.dataset.chart].kind, workload: canvas.closest("section").id,
            colors: [...colors].filter((color) => pixels.has(pixel(color))) };
        });
      })()
    JAVASCRIPT
    # What stands out of a page of 360 pixels, and out of nothing that can be moved.
    OUTSIDE = <<~JAVASCRIPT
      [...document.querySelectorAll("main *")].filter((element) => {
        const box = element.getBoundingClientRect();
        return (box.left < 0 || box.right > 360) && !element.parentElement.closest(".wide, dd");
      }).map((element) => element.outerHTML.slice(0, 100))
    JAVASCRIPT
    # The names of bars that are longer than their chart has room for.
    CUT_NAMES = <<~JAVASCRIPT
      [...document.querySelectorAll("canvas")].flatMap((canvas) => {
        const { ctx, scales: { y } } = Chart.getChart(canvas);
        ctx.font = `${Chart.defaults.font.size}px ${Chart.defaults.font.family}`;
        const names = y.type === "category" ? y.ticks.flatMap((tick) => tick.label) : [];
        return names.filter((name) => ctx.measureText(name).width > y.width);
      })
    JAVASCRIPT
    # The size in pixels and the colour of all text, and of that in charts.
    TEXTS = <<~JAVASCRIPT
      (() => {
        const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
        const texts = [{ size: Chart.defaults.font.size, color: getComputedStyle(document.body).color }];
        while (walker.nextNode()) {
          const { fontSize, color } = getComputedStyle(walker.currentNode.parentElement);
          texts.push({ size: parseFloat(fontSize), color });
        }
        return texts;
      })()
    JAVASCRIPT

    def test_what_was_made_of_the_results_is_up_to_date
      assert_empty Report.new.outdated, "run bin/bench report"
    end

    def test_a_changed_result_makes_page_picture_and_readme_outdated
      Dir.mktmpdir do |folder|
        Dir[File.join(Report::RESULTS, "*.json")].each do |path|
          File.write(File.join(folder, File.basename(path)), File.read(path).gsub(/"median": \d/, '"median": 9'))
        end

        assert_equal [Report::PAGE, Report::PICTURE, Report::README], Report.new(folder).outdated
      end
    end

    def test_a_peer_that_failed_in_a_round_is_marked_in_the_readme
      row = headlines("hello", "c1", "fairlead" => figures(100), "puma:1" => figures(50), "puma:5" => figures(70, failed: 1)).rows.first

      assert_equal [100, 70, nil, ["puma"]], [row.ours, row.peers["puma"], row.peers["falcon"], row.faults]
    end

    def test_our_own_errors_are_marked_in_the_readme_and_win_nothing
      %i[errors non_2xx failed].each do |fault|
        text = headlines("hello", "c1", "fairlead" => figures(100, fault => 1), "puma" => figures(50)).to_markdown

        assert_match(/^\| hello, 1 connection \| 100\* \|  \|  \|  \|  \| \*\*50\*\* \|$/, text)
        assert_includes text, "\\* The server lost or refused some requests"
      end
    end

    def test_the_picture_marks_errors_too
      picture = Report::Picture.new(headlines("hello", "c32", "fairlead" => figures(100, errors: 1), "puma" => figures(50))).to_s

      assert_equal %w[100* 50], picture.scan(/>([\d*]+)<\/text>/).flatten
    end

    def test_the_readme_shows_both_rows_of_ten_queries_and_where_it_is_told_why_ours_is_not_ahead
      headlines = Report::Headlines.new([result("db-10x10")])
      notes = File.read(File.join(Toolchain::ROOT, "bench/NOTES.md"))

      assert_equal ["Rails 8.1, ten queries of 10 ms, 128 connections, 2 workers", "… 512 connections"], headlines.rows.map(&:name)
      assert_includes headlines.to_markdown, "\nWhere Fairlead is not ahead, and why: [notes](bench/NOTES.md#not-ahead).\n"
      assert_match(/^## Not ahead$/, notes)
    end

    def overview_of(summary)
      load = { "name" => "free", "main_figure" => "slowest", "summary" => summary }
      Report::Overview.new([{ "workload" => "mixed", "loads" => [load] }], { "slowest" => ["ms", false] })
    end

    def test_the_overview_compares_with_the_best_peer
      rows = overview_of("fairlead" => of("slowest", 100, nil), "puma:5" => of("slowest", 400, 0.25),
        "puma:60" => of("slowest", 200, 0.5)).rows

      assert_equal [["puma:60", 2.0, "ms", [false, false]]], rows.map { |row| [row.peer, row.times, row.unit, row.faults] }
    end

    def test_what_runs_no_app_is_never_the_best_peer
      both = { "fairlead" => of("slowest", 100, nil), "nginx" => of("slowest", 50, 2.0) }

      assert_empty overview_of(both).rows
      assert_equal ["nginx:puma"], overview_of({ **both, "nginx:puma" => of("slowest", 200, 0.5) }).rows.map(&:peer)
    end

    def test_the_overview_leaves_out_no_peer_for_its_errors_and_marks_it
      %w[errors non_2xx failed].each do |fault|
        overview = overview_of("fairlead" => of("slowest", 100, nil), "puma" => of("slowest", 200, 0.5),
          "falcon" => of("slowest", 50, 2.0).merge(fault => 1))

        assert_equal [["falcon", 0.5, [false, true]]], overview.rows.map { |row| [row.peer, row.times, row.faults] }
        assert_match(/>100<.*>50\.00\*<.*>0\.50\*<.*class="bar behind"/, overview.to_html)
      end
    end

    def test_with_errors_of_our_own_we_are_not_ahead
      peer = of("slowest", 200, 0.5)
      good, faulty = [0, 1].map { |errors| overview_of("fairlead" => of("slowest", 100, nil).merge("errors" => errors), "puma" => peer).to_html }

      assert_match(/>100<.*>2\.00<.*class="bar ahead"/, good)
      assert_match(/>100\*<.*>2\.00\*<.*class="bar level"/, faulty)
    end

    def test_what_cannot_be_told_of_an_aim_is_neither_reached_nor_missed
      hello = result("hello")
      hello["loads"].each { |load| load["runs"].reject! { |run| run["server"] == "agoo" } }
      page = Report::Page.new([hello]).to_s

      assert_includes page, %(<li class="open">? 2 × the next fastest: not measured</li>)
    end

    def test_the_page_says_what_was_repeated
      mixed = result("mixed")
      mixed["loads"].each { |load| load["runs"].each { |run| run.delete("misses") } }
      free = mixed["loads"].find { |load| load["name"] == "free" }
      free["runs"].find { |run| run["server"] == "fairlead" }["misses"] = [{ "slowest" => 130.4, "control" => 104 }]

      assert_equal 1, Report::Page.new([mixed]).to_s.scan("130 in a run that was repeated; where nothing stalls: 104.").size
    end

    def test_the_overview_says_how_many_aims_a_load_missed
      idle = result("idle")
      figures = { "extra_memory" => ["MB more", false] }
      good = Report::Overview.new([idle], figures).rows.find { |row| row.load == "c10000" }.aims
      idle["loads"].each { |load| load["runs"].each { |run| run["errors"] = 1 } }

      assert_equal [true, true], good
      assert_includes Report::Overview.new([idle], figures).to_html, "✗ 1 of 2"
    end

    def test_of_what_is_better_if_there_is_less_the_readme_shows_the_least_and_marks_errors
      text = headlines("mixed", "free", "fairlead" => of("slowest", 100, nil), "puma:5" => of("slowest", 400, 0.25),
        "puma:60" => of("slowest", 200, 0.5), "falcon" => of("slowest", 90, 1.1).merge("errors" => 3)).to_markdown

      assert_match(/^\| … beside five requests.* \| \*\*100\*\* \| 90\* \|  \|  \|  \| 200 \|$/, text)
    end

    def test_a_row_says_that_it_was_disturbed_where_half_of_a_server_s_rounds_were
      load = { "name" => "c32", "main_figure" => "requests_per_second", "summary" => { "fairlead" => figures(100) } }
      rows = [[0.0, 0.2, 0.3], [0.0, 0.1, 0.3]].map do |used|
        runs = used.map { |cores| { "server" => "fairlead", "other_cpu" => cores } }
        Report::Headlines.new([{ "workload" => "hello", "loads" => [load.merge("runs" => runs)] }]).rows.first
      end

      assert_equal [true, false], rows.map(&:disturbed)
    end

    def test_the_page_says_which_versions_there_were_and_how_each_server_was_started
      hello = result("hello")
      page = Report::Page.new([hello]).to_s

      assert_match(%r{<dt>puma #{hello.dig("versions", "gems", "puma")}</dt><dd><code>ruby --yjit .*bundle exec puma}, page)
      assert_includes page, "threads 5, 5"
      assert_includes page, hello.dig("versions", "wrk")
    end

    def test_the_page_says_what_was_not_measured
      hello = result("hello")
      hello["servers"].delete("agoo")
      page = Report::Page.new([hello]).to_s

      assert_match(/Not measured yet: .*peers: agoo/, section(page, "hello"))
      assert_match(/<h3>upload<.*\n<p class="note">Not measured yet/, page)
    end

    def test_the_page_shows_which_settings_were_tried_and_where_published_figures_are_from
      hello = result("hello")
      plain = Report::Page.new([hello]).to_s
      swept = Report::Page.new([hello], [hello]).to_s

      refute_includes plain, "Settings of peers that were tried"
      assert_includes swept, "Settings of peers that were tried"
      Report::Published.read.each_value { |known| assert_includes plain, %(<a href="#{known["source"]}">Source</a>) }
    end

    def test_published_figures_are_shown_beside_each_workload_and_load_that_they_are_of
      page = Report::Page.new(Dir[File.join(Report::RESULTS, "*.json")].map { |path| JSON.parse(File.read(path)) }).to_s
      beside = Report::Published.read.flat_map do |name, known|
        known["charts"].map { |chart| [name, chart["title"], section(page, name).include?("as published: #{chart["title"]}<")] }
      end

      assert_empty beside.reject(&:last)
      assert_includes beside, ["mixed-published-4", "without-gvl", true]
      assert_includes beside, ["db-curve", "c512", true]
      assert_includes page, %({"name":"the theoretical limit","value":5120,"published":true})
    end

    def test_figures_that_were_published_of_several_name_workloads_and_loads_that_there_are
      JSON.parse(File.read(File.join(Toolchain::ROOT, "bench/published.json"))).each_value do |known|
        known["charts"].flat_map { |chart| chart.fetch("also", {}).to_a }.each do |name, load|
          assert_includes Workload.load(name).loads.map(&:name), load unless name.start_with?(FairPool::NAME)
        end
      end
    end

    def test_the_page_says_in_which_settings_ours_and_what_was_published_differ
      otherwise, alike = [[2, 6], [4, 10]].map do |workers, seconds|
        found = result("rails-db")
        loads = found["loads"].map { |load| load.merge("seconds" => seconds) }
        section(Report::Page.new([found.merge("workers" => workers, "loads" => loads)]).to_s, "rails-db")
      end

      assert_includes otherwise, "Set otherwise here: processes 2 (there 4), seconds 6 (there 10)."
      refute_includes alike, "Set otherwise"
    end

    def test_a_workload_that_no_chapter_names_comes_last
      hello = result("hello")
      pages = [[hello], [hello, hello.merge("workload" => "hello-again")]].map { |results| Report::Page.new(results).to_s }

      assert_equal [nil, %(<h2>More</h2>\n<section id="hello-again">)], pages.map { |page| page[/<h2>More.*\n.*/] }
      assert_includes pages.last, %(<a href="#hello-again">)
    end

    def test_the_page_says_where_peers_were_measured_in_fewer_rounds
      hello = result("hello")
      once = result("hello").tap do |changed|
        changed["loads"].first["runs"].reject! { |run| run["server"] == "puma" && run["round"] > 1 }
      end
      alike, fewer = [hello, once].map { |one| Report::Page.new([one]).to_s }

      refute_match(/peers: \d/, alike)
      assert_match(%r{<h4>c1: .*\n<p class="note">.* · peers: 1 round</p>}, fewer)
      assert_match(/ rounds of \d+ s · peers: 1 round · /, fewer)
      assert_match(%r{<a href="#hello">hello</a></th><th>c1<.* <small>\(1 round\)</small>}, fewer)
    end

    # Pitchfork is left out of almost all.
    def test_it_is_told_which_peer_is_left_out_of_which_workload
      text = File.read(File.join(Toolchain::ROOT, "bench/README.md"))[/^## Who is left out.*?(?=^## )/m]
      told = text.scan(/^\| (`.*?) \| (.*?) \|/).flat_map { |names, peers| names.scan(/[\w-]+/).product(peers.downcase.split(", ")) }
      left_out = Workload.names.flat_map do |name|
        peers = Workload.load(name).peers.map { |label| label[/\w+/] }
        [name].product(Report::Headlines::PEERS - peers)
      end

      assert_equal left_out.sort, told.sort
    end

    def test_the_page_says_what_was_aimed_at_and_what_was_missed
      idle = result("idle")
      page = Report::Page.new([idle]).to_s
      idle["loads"].last["runs"].each { |run| run["errors"] = 1 }
      worse = Report::Page.new([idle]).to_s

      assert_includes page, %(<li class="reached">✓ under 20 MB more than none</li>)
      refute_includes page, %(<li class="missed">)
      assert_includes worse, %(<li class="missed">✗ none closed, no error</li>)
    end

    def test_the_memory_of_crowds_is_drawn_from_none_to_the_most
      idle = result("idle")
      data = JSON.parse(Report::Page.new([idle]).to_s[%r{id="data">(.*)</script>}, 1])
      points = data.find { |chart| chart["kind"] == "growth" }["rows"].find { |row| row["ours"] }["points"]

      assert_equal [0, *idle["loads"].map { |load| load["connections"] }], points.map(&:first)
      assert_operator points.first.last, :<=, points.last.last
    end

    def test_the_page_draws_all_its_charts_and_asks_nobody_for_anything
      with_page do |page|
        charts = page.evaluate("document.querySelectorAll('canvas').length")

        assert_operator charts, :>=, 10
        assert_equal charts.to_s, page.evaluate("document.documentElement.dataset.ready")
        assert_equal [ADDRESS], page.network.traffic.map { |exchange| exchange.request.url }.grep_v(/\Adata:/)
      end
    end

    def test_each_load_has_its_latencies_drawn_and_each_pool_its_histogram
      charts = with_page { |page| page.evaluate(CHARTS) }
      drawn = charts.group_by { |chart| chart["kind"] }.transform_values { |group| group.map { |chart| chart["workload"] }.tally }

      assert_empty charts.select { |chart| chart["colors"].empty? }
      assert_equal result("hello")["loads"].size, drawn["latencies"]["hello"]
      %w[fair-pool fair-pool-jruby].each do |name|
        rows = result(name)["tables"].flat_map { |table| table["rows"] }

        assert_equal rows.count { |row| row["histogram"] }, drawn["histogram"][name]
      end
    end

    def test_on_a_phone_nothing_is_cut_off_but_tables_that_can_be_moved_and_no_text_is_small
      with_page(width: 360) do |page|
        page.evaluate("document.querySelectorAll('details').forEach((element) => { element.open = true })")

        assert_equal 360, page.evaluate("document.documentElement.scrollWidth")
        assert_empty page.evaluate(OUTSIDE)
        assert_empty page.evaluate(CUT_NAMES)
        assert_operator page.evaluate(TEXTS).map { |text| text["size"] }.min, :>=, 12
      end
    end

    def test_page_text_and_charts_are_dark_where_people_want_it_dark_and_when_they_change_their_mind
      with_page do |page|
        grounds, charts = %w[light dark].map do |scheme|
          prefer(page, scheme)
          ground = page.evaluate("getComputedStyle(document.body).backgroundColor")

          assert_empty page.evaluate(TEXTS).map { |text| text["color"] }.uniq.select { |color| contrast(color, ground) < 4.5 }
          [ground, page.evaluate(CHARTS).map { |chart| chart["colors"] }]
        end.transpose

        assert_equal ["rgb(255, 255, 255)", "rgb(13, 17, 23)"], grounds
        charts.transpose.each { |light, dark| assert_equal [true, []], [dark.any?, light & dark] }
      end
    end

    private

    def of(figure, median, ratio)
      { figure => { "median" => median }, "ratio" => ratio && { "median" => ratio }, "failed" => 0, "errors" => 0, "non_2xx" => 0 }
    end

    def figures(median, **faults) = { "requests_per_second" => { "median" => median }, **faults.transform_keys(&:to_s) }

    def headlines(workload, name, summary)
      figure = summary["fairlead"].keys.first
      load = { "name" => name, "main_figure" => figure, "summary" => summary }
      Report::Headlines.new([{ "workload" => workload, "loads" => [load], "versions" => { "ruby" => "ruby 3.3.8" } }])
    end

    def result(workload) = JSON.parse(File.read(File.join(Report::RESULTS, "#{workload}.json")))

    def section(page, workload) = page[%r{<section id="#{workload}">.*?</section>}m]

    # How many times as bright one of two colours is, as WCAG 2.2 counts it.
    def contrast(*colors)
      dark, bright = colors.map do |color|
        parts = color.scan(/\d+/).map { |part| part.to_i / 255.0 }.map { |part| part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055)**2.4 }
        parts.zip([0.2126, 0.7152, 0.0722]).sum { |part, weight| part * weight }
      end.sort
      (bright + 0.05) / (dark + 0.05)
    end

    # Once the page has been drawn anew.
    def prefer(page, scheme)
      page.command("Emulation.setEmulatedMedia", features: [{ name: "prefers-color-scheme", value: scheme }])
      page.evaluate("await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))", timeout: 10)
    end

    def with_page(width: 1100)
      skip "Chromium is not installed" unless CHROMIUM

      Dir.mktmpdir do |profile|
        browser = Ferrum::Browser.new(browser_path: CHROMIUM, headless: true, window_size: [width, 900], timeout: 60,
          process_timeout: 60, browser_options: FLAGS.merge("user-data-dir" => profile))
        page = browser.create_page
        page.command("Emulation.setDeviceMetricsOverride", width:, height: 900, deviceScaleFactor: 1, mobile: false)
        page.go_to(ADDRESS)
        yield page
      ensure
        browser&.quit
      end
    end
  end

  class MovementsTest < Minitest::Test
    # Of each round: how many times as many requests as Puma, whose p99 is 10 ms, and the figures of ours.
    def result(times:, cpu: [], p99: [], errors: 0)
      runs = times.each_with_index.flat_map do |ratio, round|
        ours = { cpu_per_request: cpu[round], p99: p99[round], errors: round.zero? ? errors : 0, non_2xx: 0 }.compact
        [{ server: "fairlead", round:, requests_per_second: ratio * 50.0, **ours },
         { server: "puma", round:, requests_per_second: 50.0, p99: 10.0, errors: 0, non_2xx: 0 }]
      end
      { workload: "hello", loads: [{ name: "c1", main_figure: "requests_per_second", runs:, summary: { fairlead: {}, puma: {} } }] }
    end

    def pool(key, rounds: 3, errors: 0, **figures)
      rows = [{ name: "connection_pool 3", max: 6, low: 6, high: 6 }, { name: "fairlead-pool 1", errors:, **figures }]
      { workload: "fair-pool", tables: [{ key:, rounds:, rows: }] }
    end

    def compare(before, after)
      Dir.mktmpdir do |folder|
        paths = [before, after].each_with_index.map do |document, index|
          File.join(folder, "#{index}.json").tap { |path| File.write(path, JSON.generate(document)) }
        end
        status = nil
        output, = capture_io { status = CLI.run(["compare", *paths]) }
        [status, output]
      end
    end

    def test_what_lies_within_the_range_of_all_rounds_has_not_moved
      status, output = compare(result(times: [2, 3, 5], cpu: [9, 10, 12]), result(times: [1, 2, 3], cpu: [8, 11, 13]))

      assert_equal 0, status
      assert_match(/^0 of 2 figures moved/, output)
    end

    def test_a_ratio_that_fell_and_cpu_that_rose_beyond_the_noise_are_worse
      status, output = compare(result(times: [2.9, 3, 3.1], cpu: [9, 10, 11]), result(times: [1.9, 2, 2.1], cpu: [12, 13, 14]))

      assert_equal 1, status
      assert_match(/^WORSE +hello c1 +requests_per_second ÷ puma +3 → +2 \(-33\.3 %\)$/, output)
      assert_match(/^WORSE +hello c1 +cpu_per_request/, output)
    end

    def test_what_got_better_is_no_reason_to_fail
      status, output = compare(result(times: [1, 1.1, 1.2], cpu: [9, 10, 11]), result(times: [2, 2.1, 2.2], cpu: [5, 6, 7]))

      assert_equal 0, status
      assert_match(/2 of 2 figures moved beyond the noise, 0 for the worse/, output)
    end

    def test_faster_with_errors_is_worse
      before, after = [[1, 0], [9, 4]].map { |times, errors| result(times: [times] * 3, errors:) }
      status, output = compare(before, after)

      assert_equal 1, status
      assert_match(/^WORSE +hello c1 +errors, non-2xx and failed rounds +0 → +4$/, output)
      refute_match(/errors/, compare(before, before).last)
    end

    def test_p99_that_grew_beside_that_of_peers_is_worse
      status, output = compare(result(times: [2] * 3, p99: [5, 6, 7]), result(times: [2] * 3, p99: [8, 9, 10]))

      assert_equal 1, status
      assert_match(/^WORSE +hello c1 +p99 ÷ puma +0\.6 → +0\.9 \(\+50\.0 %\)$/, output)
    end

    def test_of_fewer_than_three_rounds_on_a_side_it_says_that_it_cannot_be_told
      many, few = [[3] * 3, [1] * 2].map { |times| result(times:) }
      [[many, few], [few, many]].each do |before, after|
        status, output = compare(before, after)

        assert_equal 0, status
        assert_match(/^\? +hello c1 +requests_per_second ÷ puma /, output)
        assert_match(/^0 of 1 figures moved .*; 1 cannot be told \(\?\) without 3 rounds on both sides$/, output)
      end
    end

    def test_the_longest_wait_for_a_connection_is_compared_and_so_is_what_one_costs
      status, output = compare(pool("threads", max: 0.07, low: 0.07, high: 0.08), pool("threads", max: 0.09, low: 0.085, high: 0.1, errors: 1))

      assert_equal 1, status
      assert_match(/^WORSE +fair-pool threads +max +0\.07 → +0\.09 /, output)
      assert_match(/^WORSE +fair-pool threads +errors/, output)
      assert_match(/^better +fair-pool cost +microseconds +1\.2 → +1 /, compare(pool("cost", microseconds: 1.2, low: 1.2, high: 1.3),
        pool("cost", microseconds: 1.0, low: 1.0, high: 1.1)).last)
    end

    def test_a_pool_that_was_measured_once_says_nothing
      once, thrice = [1, 3].map { |rounds| pool("threads", rounds:, max: 0.1 / rounds, low: 0.1 / rounds, high: 0.1 / rounds) }

      assert_match(/^\? +fair-pool threads/, compare(once, thrice).last)
    end

    def test_what_is_no_result_is_refused_with_its_name
      status = nil
      _, errors = capture_io { status = CLI.run(%w[compare README.md README.md]) }

      assert_equal 2, status
      assert_match(/README\.md is no result of bin\/bench/, errors)
    end
  end
end
