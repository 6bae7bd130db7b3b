# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # A deploy cuts no answer: whatever a client asks for once runs to its end when its worker is told to go. The stream of an EventSource
  # ends in order, and its client connects again.
  class DrainingStreamsTest < Test
    include SpeaksHTTP

    # Each response pauses until there is a file `gate`; a file named after it says how the app came to its end.
    APP = <<~'RUBY'
      class Answer
        def initialize(name) = @name = name

        def each
          File.write("began-#{@name}", "")
          yield "data: first\n\n" unless @name.end_with?("later")
          sleep 0.01 until File.exist?("gate")
          yield "data: last\n\n"
          how = "complete"
        ensure
          File.write("ended-#{@name}", how || $!.class.name)
        end
      end

      run(lambda do |env|
        name = env["QUERY_STRING"]
        case env["PATH_INFO"]
        when "/" then [200, {}, ["ok"]]
        when "/page" then [200, {}, [].tap { |body| Answer.new(name).each { |part| body << part } }]
        when "/text" then [200, { "content-type" => "text/plain" }, Answer.new(name)]
        when "/events" then [200, { "content-type" => "text/event-stream" }, Answer.new(name)]
        when "/hijack"
          socket = env["rack.hijack"].call
          socket.write("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
          Answer.new(name).each { |part| socket.write(part) }
          socket.close
        when "/callable"
          [200, { "content-type" => "text/event-stream" }, lambda do |stream|
            Answer.new(name).each { |part| stream.write(part) }
            stream.close
          end]
        end
      end)
    RUBY

    EVENTS = "Accept: text/event-stream"
    # Those that a client asks for once.
    ONCE = {
      "post" => ["POST", "/events", EVENTS, "Content-Length: 0"],
      "post-later" => ["POST", "/events", EVENTS, "Content-Length: 0"],
      "post-callable" => ["POST", "/callable", EVENTS, "Content-Length: 0"],
      "get" => ["GET", "/events", "Accept: */*"],
      "text" => ["GET", "/text", EVENTS],
      "page" => ["GET", "/page", EVENTS]
    }.freeze
    FIRST = "data: first\n\n"
    WHOLE = "data: first\n\ndata: last\n\n"

    ENDINGS = {
      HUP: ->(server) { server.restart(:HUP) },
      TERM: ->(server) { server.signal(:TERM) },
      USR2: ->(server) { server.restart(:USR2) },
      recycling: ->(server) { 3.times { server.get("/") } }
    }.freeze

    ENDINGS.each do |name, ending|
      define_method(:"test_each_answer_is_whole_and_the_app_completes_at_#{name}") do
        server = with_server(APP, *("--recycle-requests=3" if name == :recycling), lint: false)
        answers = begin_answers(server, ONCE)
        feed = begin_answers(server, "feed" => ["GET", "/events", EVENTS]).fetch("feed")
        ending.call(server)

        assert_match(/\A#{FIRST}(?::\n)*retry: \d+\n\n\z/, feed.response.body)
        eventually("the app's end") { ended(server, "feed") == "Fairlead::ServerStopping" }
        server.write("gate", "")
        answers.each do |path, client|
          assert_equal path.end_with?("later") ? WHOLE.delete_prefix(FIRST) : WHOLE, client.response.body.gsub(/^:\n/, ""), path
          eventually("the end of #{path}") { ended(server, path) == "complete" }
        end
        refute_match(/ClientGone|Error/, server.log)
      end
    end

    def test_what_takes_too_long_is_cut_off_so_that_its_client_can_tell
      server = with_server(APP, "--drain-timeout", "0.5", lint: false)
      answers = begin_answers(server, ONCE)
      server.signal(:TERM)

      answers.each do |path, client|
        next assert_turned_away(client) if path == "page"

        rest = client.rest
        assert_match(%r{\AHTTP/1.1 200 OK\r\n}, rest, path)
        refute_match(/retry:|^0\r\n\r\n\z/, rest, path)
      end
      server.wait_for_end

      assert_empty ONCE.keys.to_h { |path| [path, ended(server, path)] }.reject { |_, how| %w[Fairlead::ServerStopping Async::Cancel].include?(how) }
      refute_match(/RequestTimeout|Error/, server.log, "a stop is no error of the app")
    end

    def test_streams_may_have_longer_than_other_requests
      server = with_server(APP, "--drain-timeout", "0.5", "--stream-drain-timeout", "60", lint: false)
      answers = begin_answers(server, ONCE.except("text"))
      hijacked = begin_answers(server, "hijacked" => ["GET", "/hijack"]).fetch("hijacked")
      server.signal(:TERM)

      assert_turned_away(answers.delete("page"))
      eventually("the page's end") { ended(server, "page") == "Fairlead::ServerStopping" }
      server.write("gate", "")
      assert_operator hijacked.rest, :end_with?, WHOLE
      answers.each_value { |client| assert_operator client.response.body, :end_with?, "data: last\n\n" }
      assert_predicate server.wait_for_end, :success?
    end

    private

    # @return [Hash{String => HTTPClient}] whose responses have begun.
    def begin_answers(server, requests)
      requests.to_h do |name, (method, path, *fields)|
        [name, client(to: server).request(method, "#{path}?#{name}", *fields)].tap do
          eventually("the beginning of #{name}") { File.exist?(server.path("began-#{name}")) }
        end
      end
    end

    def ended(server, name)
      File.read(server.path("ended-#{name}"))
    rescue Errno::ENOENT
      nil
    end

    def assert_turned_away(client)
      response = client.response
      assert_equal [503, "1", "the server is shutting down\n"], [response.status, response["retry-after"], response.body]
    end
  end
end
