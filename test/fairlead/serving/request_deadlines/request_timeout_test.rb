# frozen_string_literal: true

require_relative "../../../helper"
require_relative "../../../stalls"

module Fairlead
  # A request that takes longer than it may: its client is told in time, and it is cancelled where it waits.
  # Covers serving/request_deadlines.rb
  class RequestTimeoutTest < Test
    include SpeaksHTTP
    include Stalls

    # Seconds.
    LIMIT = 1.0

    APP = <<~RUBY.freeze
      #{Stalls::APP[/\A.*?(?=^run)/m]}
      def Object.note(line) = File.open("notes", "a") { |file| file.syswrite(line + "\\n") }

      class Body
        def initialize(env, parts) = (@env, @parts = env, parts)
        def each(&) = @parts.each(&)
        def close = Object.note("closed \#{@env["PATH_INFO"]}")
      end

      LIMIT = #{LIMIT}
      NOTES = []
      LOCK = Mutex.new
      PIPE = IO.pipe # both ends: the collector would close one that nothing refers to
      WAITS = {
        sleep: -> { sleep 20 },
        queue: -> { Queue.new.pop },
        pipe: -> { PIPE.first.read },
        thread: -> { Thread.new { sleep 20 }.join },
        task: -> { Async { sleep 20 }.wait },
        lock: -> { LOCK.synchronize { LOCK.sleep(20) } },
        process: -> { Process.wait(spawn("sleep 2")) },
        select: -> { IO.select([PIPE.first], nil, nil, 20) },
        inner: -> { Enumerator.new { |items| items << sleep(20) }.next }
      }

      run lambda { |env|
        path = env["PATH_INFO"]
        seconds, stall = env["QUERY_STRING"].split("&")
        seconds = seconds.to_f
        File.write("begun-\#{stall}", "") if stall
        env["rack.response_finished"] << ->(_, status, _, error) { Object.note("finished \#{path} \#{status.inspect} \#{error.class}") }
        Fairlead.request_timeout = nil if %w[/ /notes].include?(path) # who asks whether all is well is not told of a slow machine
        sleep(20) if path == "/unrescued"
        begin
          case path
          when %r{^/waits/} then WAITS.fetch(path[7..].to_sym).call
          when "/free" then Cwork.without_gvl(seconds)
          when "/held" then Cwork.with_gvl(seconds)
          when "/free/gate" then (Cwork.without_gvl(seconds); Cwork.without_gvl(0.02) while File.exist?("gate"))
          when "/cpu/gate" then (compute(0.5) while File.exist?("gate"))
          when %r{^/kept} then Cwork.with_gvl_while(env["QUERY_STRING"], 300)
          when "/cpu" then compute(seconds)
          when "/sleep" then sleep(seconds)
          when "/free-then-wait" then (4.times { |n| Cwork.without_gvl(seconds); NOTES << "free \#{n}" }; sleep(20))
          when "/cpu-then-wait" then (4.times { |n| compute(seconds); NOTES << "cpu \#{n}" }; sleep(20))
          when "/held-then-wait" then (Fairlead.request_timeout = LIMIT; 4.times { |n| Cwork.with_gvl(seconds); NOTES << "held \#{n}" }; sleep(20))
          when "/c-then-wait" then (4.times { |n| Cwork.computes_with_gvl(seconds); NOTES << "c \#{n}" }; sleep(20))
          when "/notes" then return [200, {}, [NOTES.join(" ")]]
          when "/held-task" then (Async { Cwork.with_gvl(seconds) }.wait; sleep(20))
          when "/held-masked" then (Thread.handle_interrupt(Exception => :never) { Cwork.with_gvl(seconds); sleep(0.1); Object.note("held on") }; sleep(20))
          when "/quick-then-callback" then env["rack.response_finished"] << ->(*) { sleep(seconds); Object.note("called back in time") }
          when "/late-then-callback" then (env["rack.response_finished"] << ->(*) { sleep(0.05); Object.note("called back late") }; compute(seconds))
          when "/uninterruptible" then Fairlead::Uninterruptible.run { 3.times { sleep(seconds) }; Object.note("ended the section") }
          when "/longer" then (Fairlead.request_timeout = 4; sleep(seconds))
          when "/longer-from-within" then (Async { Fairlead.request_timeout = nil }.wait; sleep(seconds))
          when "/cleans-up" then begin sleep(20) ensure (sleep(0.05); Object.note("cleaned up")) end
          when "/goes-on" then begin sleep(20) rescue (sleep(0.7); Object.note("went on")) end
          when "/parts" then return [200, {}, Body.new(env, Enumerator.new { |parts| 12.times { parts << "part"; sleep(seconds) } })]
          when "/silent" then return [200, {}, Body.new(env, Enumerator.new { |parts| parts << "begun"; sleep(20) })]
          when "/events" then return [200, { "content-type" => "text/event-stream" }, Enumerator.new { |parts| parts << "a"; sleep(seconds); parts << "z" }]
          when "/callable" then return [200, {}, ->(stream) { stream.write("a"); stream.flush; sleep(seconds); stream.write("z"); stream.close }]
          when "/upload" then return [200, {}, [env["rack.input"].read.bytesize.to_s]]
          end
        rescue Fairlead::RequestTimeout => error
          Object.note("rescued \#{path} \#{error.message}")
        ensure
          Object.note("ensured \#{path}")
        end
        [200, {}, Body.new(env, [path])]
      }
    RUBY

    def server(workers: 1)
      shared_server(APP, "-w", workers.to_s, "--request-timeout", LIMIT.to_s, "--access-log", "json", name: workers)
    end

    # @return [Array(HTTPClient::Response, Float)] the answer to one request on a connection of its own, and seconds.
    def ask(path, to: server, **options)
      one = client(to:, timeout: 20)
      response = nil
      took = duration { response = one.get(path, **options) }
      assert_predicate one, :eof?, "the connection ends" if response&.status == 504
      [response, took]
    end

    # @return [HTTPClient::Response] the first that begins in time: a busy machine may need longer for it.
    def in_time(path) = eventually("#{path} begins in time") { ask(path).first.then { |response| response if response.status == 200 } }

    # @param paths [Array<String>] requested at once, each on a connection of its own.
    def assert_timed_out(*paths, to: server)
      began = monotonic
      clients = paths.map { |path| client(to:).request("GET", path) }
      clients.zip(paths) do |one, path|
        response = one.response
        took = monotonic - began
        assert_equal [504, "close", "the request took too long\n"], [response.status, response["connection"], response.body]
        assert_predicate one, :eof?, "the connection ends"
        assert_operator took, :>=, LIMIT
        assert_operator took, :<, 15, path
      end
    end

    # One that stalls until its client has been told.
    #
    # @return [Float] seconds that it has taken at least.
    def assert_told_while_it_stalls(path, to: server)
      kept = "kept-#{new_word}"
      over = "ensured #{path}"
      before = notes(to).count(over)
      while_the_gate_is_closed(to) do
        assert_timed_out "#{path}?#{path == "/kept" ? kept : 0.3}", to: to
        told = monotonic
        assert_equal before, notes(to).count(over), "it was told only when the call was over"
        sleep 0.2
        LIMIT + monotonic - told
      ensure
        release(to)
      end
    end

    def notes(server) = File.exist?(server.path("notes")) ? File.readlines(server.path("notes"), chomp: true) : []

    def eventually_noted(server, *lines)
      begin
        eventually("#{lines} is noted") { (lines - notes(server)).empty? }
      rescue Minitest::Assertion => error
        raise error, "#{error.message}, but #{notes(server).last(30)}"
      end
      lines.each { |line| assert_equal 1, notes(server).count(line), line }
    end

    def test_one_that_waits_is_cancelled_at_its_wait_whatever_it_waits_for
      paths = %w[sleep queue pipe thread task lock select inner process].map { |wait| "/waits/#{wait}" }
      assert_timed_out(*paths)
      paths.each do |path|
        eventually_noted server, "rescued #{path} the request has taken longer than it may (request_timeout)",
                         "ensured #{path}", "closed #{path}", "finished #{path} 200 Fairlead::ClientGone"
      end
      assert_equal 200, ask("/").first.status
    end

    def test_the_error_of_one_that_does_not_rescue_it_is_logged_with_where_it_waited
      assert_timed_out "/unrescued"
      eventually_noted server, "finished /unrescued nil Fairlead::RequestTimeout"
      eventually("it is logged") { server.log.match?(%r{fairlead: GET /unrescued: .*\(Fairlead::RequestTimeout\).*config\.ru:\d+:in .*sleep}m) }
    end

    def test_a_clean_up_may_wait_and_is_not_cancelled_again
      assert_timed_out "/cleans-up", "/goes-on"
      eventually_noted server, "cleaned up", "went on"
    end

    # Without Ruby's lock, with it, and computing. None of them waits afterwards, so none is told.
    def test_the_client_of_one_that_stalls_is_told_in_time_and_what_the_app_says_later_is_dropped
      [1, 2].each do |workers|
        to = server(workers:)
        %w[/free/gate /kept /cpu/gate].each do |kind|
          before = notes(to).count { |line| line.end_with?(kind) || line.include?("#{kind} ") }
          taken = assert_told_while_it_stalls(kind, to:)
          eventually("its callbacks have run") { notes(to).count("closed #{kind}") == 1 }
          eventually_noted to, "ensured #{kind}", "finished #{kind} 200 Fairlead::ClientGone"
          assert_equal before + 3, notes(to).count { |line| line.end_with?(kind) || line.include?("#{kind} ") }
          line = eventually("it is in the access log") { to.log[/^{.*"target":"#{kind}\?.*$/] }
          line = JSON.parse(line, symbolize_names: true)
          assert_equal [504, 0, true], line.values_at(:status, :bytes, :timed_out)
          assert_operator line[:duration], :>=, taken
        end
        assert_equal 200, ask("/", to:).first.status
      end
    end

    # Whoever has to tell it: the reactor, another one, or the watch thread.
    timing def test_a_client_is_told_when_the_time_is_up_and_not_later
      with_server(APP, "-w", "1", "--request-timeout", LIMIT.to_s) do |server|
        %w[/waits/sleep /free?1.3 /cpu?1.3 /held?1.3].each do |path|
          assert_median_below(LIMIT + 0.2, path, runs: 3) do
            assert_equal "200", server.get("/").code # the one before is over
            response, took = ask(path, to: server)
            assert_equal 504, response.status
            took
          end
        end
      end
    end

    # The second time its route has a lane: it runs in a reactor that does not lead, and who leads waits.
    def test_so_is_the_client_of_one_whose_route_is_known_to_stall
      with_server(APP, "-w", "1", "--request-timeout", LIMIT.to_s) do |server|
        %w[/free/gate /kept].each do |path|
          3.times do |number|
            assert_told_while_it_stalls(path, to: server)
            eventually("it is over") { notes(server).count("ensured #{path}") == number + 1 }
          end
        end
      end
    end

    # Without Ruby's lock, computing in Ruby, with the lock, and computing in C.
    def test_one_that_blocks_or_computes_is_cancelled_at_its_next_wait_and_not_before
      %w[free cpu held c].each do |kind|
        path = "/#{kind}-then-wait"
        assert_timed_out "#{path}?#{LIMIT * 0.6}"
        eventually_noted server, "rescued #{path} the request has taken longer than it may (request_timeout)", "closed #{path}"
      end
      noted = client.get("/notes").body.split(/ (?=[a-z])/)
      assert_equal %w[free cpu held c].flat_map { |kind| Array.new(4) { |n| "#{kind} #{n}" } }, noted, "each call ran to its end"
    end

    def test_an_uninterruptible_section_ends_before_its_request_is_cancelled
      assert_timed_out "/uninterruptible?#{LIMIT * 0.6}"
      eventually_noted server, "ended the section",
                       "rescued /uninterruptible the request has taken longer than it may (request_timeout)"
    end

    # In its own fiber, and not before the mask is gone.
    def test_one_whose_task_blocks_or_that_masks_interrupts_is_cancelled_where_it_waits
      %w[/held-task /held-masked].each do |path|
        assert_timed_out "#{path}?#{LIMIT * 2}"
        eventually_noted server, "rescued #{path} the request has taken longer than it may (request_timeout)", "closed #{path}"
      end
      eventually_noted server, "held on"
      assert_equal 200, ask("/").first.status
    end

    # Fibers of the same thread wait beside it, and can go on as it returns.
    def test_nobody_else_is_cancelled_with_one_that_held_the_lock
      with_server(APP, "-w", "1", "--request-timeout", "60") do |server|
        2.times do
          others = Array.new(8) { |n| client(to: server).write("GET /sleep?#{(LIMIT * 1.5) + (n * 0.15)} HTTP/1.1\r\nHost: a\r\n\r\n") }
          assert_timed_out "/held-then-wait?#{LIMIT * 0.6}", to: server # half of them could go on before it returns
          assert_each_equal 200, others.map(&:response), server, &:status
        end
        told = notes(server).filter_map { |line| line[/^rescued (\S+)/, 1] }
        assert_equal ["/held-then-wait"] * 2, told
      end
    end

    # Also where the time was up before the response was over, and the callback is the first to wait after that.
    def test_one_whose_response_is_over_is_not_cancelled_in_its_callbacks
      assert_equal 200, in_time("/quick-then-callback?#{LIMIT * 2}").status
      assert_timed_out "/late-then-callback?#{LIMIT * 2}"
      eventually("it was called back") { notes(server).include?("called back in time") }
      eventually_noted server, "called back late", "finished /late-then-callback 200 Fairlead::ClientGone"
    end

    # Its fiber belongs to a thread that does not come back: the client need not wait for that.
    def test_one_that_waits_beside_one_that_stalls_is_told_in_time_too
      with_server(APP, "--request-timeout", LIMIT.to_s) do |server|
        waits = client(to: server).write("GET /waits/sleep HTTP/1.1\r\nHost: a\r\n\r\n")
        stalls = client(to: server).write("GET /kept?kept-#{new_word} HTTP/1.1\r\nHost: a\r\n\r\n")
        eventually("it sleeps with the lock") { Dir[server.path("kept-*")].any? }
        assert_equal [504, 504], [waits, stalls].map { |each| each.response.status }
        refute_includes notes(server), "ensured /kept"
        release(server)
        eventually_noted server, "ensured /waits/sleep", "ensured /kept"
      end
    end

    timing def test_a_response_that_has_begun_is_cut_off_when_it_falls_silent
      FileUtils.rm_f(server.path("notes")) # of the measurement before
      one = client.write("GET /silent HTTP/1.1\r\nHost: a\r\n\r\n")
      text = one.rest
      assert_includes text, "5\r\nbegun\r\n"
      refute_includes text, "\r\n0\r\n"
      eventually_noted server, "closed /silent", "finished /silent 200 Fairlead::RequestTimeout"
      line = eventually("it is in the access log") { server.log[/^{.*"target":"\/silent".*$/] }
      assert_equal [200, true], JSON.parse(line).values_at("status", "timed_out")
    end

    def test_a_response_that_goes_on_may_take_longer
      with_server(APP, "--request-timeout", "3") do |server|
        response, took = ask("/parts?0.3", to: server)
        assert_equal [200, "part" * 12], [response.status, response.body]
        assert_operator took, :>, 3
      end
    end

    def test_long_lived_responses_may_be_silent
      each_at_once(%w[/events /callable]) do |path|
        assert_equal "az", in_time("#{path}?#{LIMIT * 2}").body
      end
    end

    timing def test_a_client_that_sends_slowly_is_not_timed_out_for_it
      size = 400_000
      one = client.write("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: #{size}\r\n\r\n")
      4.times do
        refute one.socket.wait_readable(LIMIT * 0.6)
        one.write("x" * (size / 4))
      end
      assert_equal [200, "400000"], one.response.then { |response| [response.status, response.body] }
    end

    def test_one_may_ask_for_a_time_of_its_own
      each_at_once(["/longer?7", "/longer?#{LIMIT * 2}", "/longer-from-within?#{LIMIT * 2}"]) do |path|
        next assert_equal(200, in_time(path).status) unless path.end_with?("?7")

        response, took = ask(path)
        assert_equal 504, response.status
        assert_operator took, :>=, 4
      end
    end

    def test_in_the_foreground_too
      with_server(APP, "-w", "0", "--request-timeout", LIMIT.to_s) do |server|
        %w[/waits/sleep /held?2].each { |path| assert_equal 504, ask(path, to: server).first.status }
      end
    end

    def test_without_the_option_it_takes_as_long_as_it_takes
      with_server(APP) do |server|
        assert_equal 200, ask("/longer?#{LIMIT * 2}", to: server).first.status
      end
    end

    def test_among_pipelined_requests_those_before_it_are_answered
      one = client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 2 + "HEAD /sleep?2 HTTP/1.1\r\nHost: a\r\n\r\n" \
                         "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
      statuses = [one.response, one.response, one.response(head: true)].map(&:status)
      assert_equal [200, 200, 504], statuses
      assert_predicate one, :eof?
    end

    # Those that end about when their time is up, on fibers that have served others: each is told for itself, or not.
    def test_no_request_is_told_for_another_one
      with_server(<<~RUBY, "--request-timeout", "0.1") do |server|
        run lambda { |env|
          came = env["HTTP_X_REQUEST_START"].delete_prefix("t=").to_f
          begin
            3.times { sleep(env["QUERY_STRING"].to_f / 3) }
          rescue Fairlead::RequestTimeout
            File.write("wrong", env["QUERY_STRING"]) if Time.now.to_f - came < 0.09
            raise
          end
          [200, {}, [env["QUERY_STRING"]]]
        }
      RUBY
        threads = Array.new(8) do |number|
          Thread.new do
            random = Random.new(number)
            Array.new(25) do
              seconds = (0.085 + (random.rand * 0.03)).round(4)
              response = server.get("/?#{seconds}")
              "#{seconds}: #{response.code} #{response.body}" unless response.code == "504" || [response.code, response.body] == ["200", seconds.to_s]
            end
          end
        end
        assert_each_equal nil, threads.flat_map(&:value), server
        refute_path_exists server.path("wrong")
        eventually("one that is quick is answered") { server.get("/?0.01").body == "0.01" }
      end
    end

    # Nobody turns the loop but the watch thread.
    def test_one_that_never_had_its_turn_is_refused_when_its_time_is_up_while_the_worker_is_stuck
      with_server(APP, "-w", "1", "--queue-timeout", LIMIT.to_s) do |server|
        stuck = keep_stuck(server)
        response, = ask("/", to: server)
        assert_equal [503, "1", "close"], [response.status, response["retry-after"], response["connection"]]
        release(server)
        assert_equal 200, stuck.response.status
        refute_includes notes(server), "ensured /"
      end
    end
  end
end
