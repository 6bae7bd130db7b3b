# frozen_string_literal: true

require "json"
require_relative "ecosystem"
require_relative "../http_client"

module Fairlead
  # Servers of the Model Context Protocol, with the official gem and with fast-mcp. A session is in the memory of the worker that
  # has begun it.
  # Covers integrations/fast_mcp_sessions.rb
  class MCPTest < EcosystemTest
    include SpeaksHTTP

    # Both gems have a lib/mcp/server.rb.
    APP = <<~'RUBY'
      $LOAD_PATH.reject! { |path| path.include?("/fast-mcp-") }
      require "mcp"

      class Where < MCP::Tool
        description "The process that answers"
        input_schema(properties: { text: { type: "string" }, gate: { type: "boolean" } })

        def self.call(text: "", gate: false, server_context: nil)
          File.write("where-#{text.size}", "") if gate
          sleep(0.01) until !gate || File.exist?("all-are-here")
          MCP::Tool::Response.new([{ type: "text", text: "#{Process.pid} #{text.size}" }])
        end
      end

      class Tell < MCP::Tool
        description "Tells those who listen"
        def self.call(server_context: nil)
          SERVER.notify_tools_list_changed
          MCP::Tool::Response.new([{ type: "text", text: "told" }])
        end
      end

      class Ask < MCP::Tool
        description "Asks the user"
        def self.call(server_context: nil)
          schema = { type: "object", properties: { ship: { type: "string" } }, required: ["ship"] }
          answer = server_context.create_form_elicitation(message: "Which ship?", requested_schema: schema)
          MCP::Tool::Response.new([{ type: "text", text: "#{Process.pid} #{answer.dig(:content, :ship)}" }])
        end
      end

      class Pay < MCP::Tool
        description "Pays once there is a file `gate`"
        def self.call(server_context: nil)
          File.write("began", "")
          sleep 0.01 until File.exist?("gate")
          how = "paid"
          MCP::Tool::Response.new([{ type: "text", text: "paid" }])
        ensure
          File.write("payment", how || $!.class.name)
        end
      end

      SERVER = MCP::Server.new(name: "where", version: "1", tools: [Where, Tell, Ask, Pay])
      TRANSPORT = MCP::Server::Transports::StreamableHTTPTransport.new(SERVER, stateless: ENV.key?("STATELESS"))
      SERVER.transport = TRANSPORT
      map("/mcp") { run TRANSPORT }
      map("/pid") { run ->(_) { sleep 0.01; [200, {}, [Process.pid.to_s]] } }
    RUBY

    FAST = <<~'RUBY'
      require "fast_mcp"

      class Greet < FastMcp::Tool
        description "Greets"
        arguments { required(:name).filled(:string) }
        def call(name:) = "#{Process.pid} greets #{name}"
      end

      filtered = 0
      app = ->(env) { sleep 0.01; [200, {}, [(env["PATH_INFO"] == "/filtered" ? filtered : Process.pid).to_s]] }
      run FastMcp.rack_middleware(app, name: "greeter", version: "1", logger: Logger.new(File::NULL)) { |server|
        server.register_tool(Greet)
        server.filter_tools { |_, tools| filtered += 1; tools }
      }
    RUBY

    ACCEPT = "Accept: application/json, text/event-stream"
    JSON_TYPE = "Content-Type: application/json"

    # What a client of the protocol does, each time on the connection that it is given.
    class Session
      attr_reader :id

      def initialize(client)
        response = post(client, "initialize", protocolVersion: "2025-06-18", capabilities: { elicitation: {} }, clientInfo: { name: "test", version: "1" })
        raise "#{response.status}: #{response.body}" unless response.status == 200

        @id = response["mcp-session-id"]
        post(client, "notifications/initialized", id: nil)
      end

      # @return [HTTPClient::Response]
      def post(client, method, id: rand(1_000_000), **params) = request(client, { id:, method:, params: }.compact).response

      # @return [HTTPClient]
      def request(client, message)
        body = JSON.generate(jsonrpc: "2.0", **message)
        client.request("POST", "/mcp", ACCEPT, JSON_TYPE, *header, body:, host: "localhost")
      end

      # @return [String, Integer] what the tool says, or the status.
      def call(client, tool = "Where", **arguments)
        Session.said(post(client, "tools/call", name: tool.downcase, arguments:))
      end

      def listen(client) = client.request("GET", "/mcp", "Accept: text/event-stream", *header, host: "localhost")

      def header = @id ? ["Mcp-Session-Id: #{@id}"] : []

      def self.said(response)
        return response.status unless response.status == 200

        JSON.parse(response.body.delete_prefix("data: ")).dig("result", "content", 0, "text")
      end
    end

    def test_a_session_in_one_worker
      server = shared_server(APP, name: :one, env: BUNDLE)
      session = Session.new(client(to: server))
      pid = server.worker_pids.first

      assert_match(/\A\h{8}-/, session.id)
      assert_equal "#{pid} 0", session.call(client(to: server))
      assert_hears_of_changes(server, session)
    end

    def test_twenty_calls_that_wait_are_answered_at_once
      server = shared_server(APP, name: :one, env: BUNDLE)
      session = Session.new(client(to: server))
      calls = Array.new(20) { |n| Thread.new { session.call(client(to: server), text: "x" * n, gate: true) } }
      eventually("all have begun") { Dir[server.path("where-*")].size == 20 }
      server.write("all-are-here", "")

      assert_equal (0...20).map(&:to_s), calls.map { |call| call.value.split.last }
    end

    # "Disconnection SHOULD NOT be interpreted as the client cancelling its request" (Streamable HTTP).
    def test_a_call_whose_client_has_gone_goes_on
      server = with_server(APP, "--cancel-abandoned", env: BUNDLE)
      begin_payment(server).reset
      sleep 0.2 # else nothing could cancel it
      server.write("gate", "")

      eventually("the payment") { payment(server) == "paid" }
    end

    def test_a_call_is_answered_while_its_worker_is_replaced
      server = with_server(APP, env: BUNDLE)
      call = begin_payment(server)
      server.restart
      server.write("gate", "")

      assert_equal "paid", Session.said(call.response)
      assert_equal "paid", payment(server)
    end

    def test_a_server_without_sessions_answers_in_any_worker
      server = shared_server(APP, "-w", "2", name: :stateless, env: BUNDLE.merge("STATELESS" => "1"))
      clients = client_of_each(server)
      session = Session.new(clients.values.first)

      assert_nil session.id
      clients.each_value { |client| assert_includes server.worker_pids, session.call(client).to_i }
    end

    # Each call on a connection of its own: half of them come to the worker that does not know the session.
    def test_sessions_over_two_workers
      server = shared_server(APP, "-w", "2", name: :two, env: BUNDLE)
      sessions = client_of_each(server).values.map { |client| Session.new(client) }
      sessions.each do |session|
        pids = Array.new(10) { |n| session.call(client(to: server), text: "x" * n * 10_000).split }

        assert_equal (0...10).map { |n| (n * 10_000).to_s }, pids.map(&:last)
        assert_equal 1, pids.map(&:first).uniq.size
      end
      assert_hears_of_changes(server, sessions.first, of: client_of_each(server).values.last)
    end

    # The tool waits in one request for what the client posts in another.
    def test_a_tool_that_asks_the_user_gets_the_answer_over_any_connection
      server = shared_server(APP, "-w", "2", name: :two, env: BUNDLE)
      session = Session.new(client(to: server))
      asking = Array.new(4) { |n| session.request(client(to: server), id: n + 1, method: "tools/call", params: { name: "ask", arguments: {} }) }
      questions = asking.map { |client| JSON.parse(await_data(client, "elicitation/create")).fetch("id") }
      questions.each_with_index do |id, n|
        answer = session.request(client(to: server), id:, result: { action: "accept", content: { ship: "Argo #{n}" } })

        assert_equal 202, answer.response.status
      end
      said = asking.map { |client| JSON.parse(await_data(client, "Argo")).dig("result", "content", 0, "text") }

      assert_equal (0...4).map { |n| "#{said.first.to_i} Argo #{n}" }, said
    end

    def test_a_client_whose_session_has_ended_with_its_worker_begins_a_new_one
      server = with_server(APP, "-w", "2", env: BUNDLE)
      session = Session.new(client(to: server))
      pid = session.call(client(to: server)).to_i
      Process.kill(:KILL, pid)
      eventually("it is replaced") { (server.worker_pids - [pid]).size == 2 && server.get("/pid").code == "200" }

      assert_equal 404, session.call(client(to: server))
      refute_equal pid, Session.new(client(to: server)).call(client(to: server)).to_i
    end

    # The client of the older transport has its answers as events of its stream, which belongs to one worker.
    def test_fast_mcp_answers_over_the_stream_of_its_client
      server = shared_server(FAST, "-w", "2", name: :fast, env: BUNDLE, lint: false)
      streams = %w[/mcp/sse /mcp/sse?session_id=own].flat_map do |path|
        client_of_each(server).values.each { |client| client.request("GET", path, host: "localhost") }
      end
      endpoints = streams.map { |stream| await_event(stream, "endpoint") }
      answered = streams.zip(endpoints).each_with_index.map do |(stream, endpoint), n|
        Array.new(3) { |m| greet(server, endpoint, "#{n}-#{m}", stream) }.uniq
      end

      assert_equal [1, 1, 1, 1], answered.map(&:size)
      assert_equal server.worker_pids.sort, answered.flatten.uniq.sort
    end

    # It keeps a copy of its server for each query that its filters see. (Two that come at once may both make one, as in threads.)
    def test_fast_mcp_filters_once_for_all_streams_of_a_url
      server = with_server(FAST, lint: false)
      3.times { await_event(client(to: server).request("GET", "/mcp/sse", host: "localhost"), "endpoint") }

      assert_equal "1", server.get("/filtered").body
    end

    private

    # @return [HTTPClient] of a call that runs.
    def begin_payment(server)
      call = Session.new(client(to: server)).request(client(to: server), id: 7, method: "tools/call", params: { name: "pay", arguments: {} })
      eventually("it runs") { File.exist?(server.path("began")) }
      call
    end

    def payment(server)
      File.read(server.path("payment"))
    rescue Errno::ENOENT
      nil
    end

    # @return [Hash{Integer => HTTPClient}] a connection of each worker.
    def client_of_each(server)
      found = {}
      eventually("each worker has answered") do
        clients = Array.new(4) { client(to: server).request("GET", "/pid") }
        clients.each { |client| found[client.response.body.to_i] ||= client }
        (server.worker_pids - found.keys).empty?
      end
      found
    end

    # A notification of the server comes over the stream that a GET opens.
    def assert_hears_of_changes(server, session, of: client(to: server), by: client(to: server))
      session.listen(of)
      nil until of.line.empty? # the head, which leaves before the first event
      eventually("somebody hears") do
        assert_equal "told", session.call(by, "Tell")
        !of.silent?
      end

      assert_includes await_data(of, "notifications"), "notifications/tools/list_changed"
    end

    # @return [Integer] the process that says so.
    def greet(server, endpoint, name, stream)
      call = { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "Greet", arguments: { name: } } }
      response = server.post(endpoint, JSON.generate(call), "content-type" => "application/json", "host" => "localhost")

      assert_equal "200", response.code
      JSON.parse(await_data(stream, "greets #{name}")).dig("result", "content", 0, "text").to_i
    end

    def await_event(client, name)
      nil until client.line_feed == "event: #{name}"
      client.line_feed.delete_prefix("data: ")
    end

    def await_data(client, text)
      loop do
        line = client.line_feed
        return line.delete_prefix("data: ") if line.start_with?("data: ") && line.include?(text)
      end
    end
  end
end
