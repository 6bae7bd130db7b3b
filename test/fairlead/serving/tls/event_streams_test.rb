# frozen_string_literal: true

require_relative "../../../browser"
require_relative "../../../decoders"
require_relative "../../../helper"
require_relative "../../../http2_client"
require_relative "../../../tls_client"

module Fairlead
  # Event streams over TLS, over HTTP/1.1 and HTTP/2: each event arrives at once, the core keeps silent ones alive and ends them in order,
  # also in a content coding.
  class EventStreamsOverTLSTest < Test
    include Decoders
    include SpeaksHTTPS

    needs :browser

    APP = <<~'RUBY'
      EVENTS = { "content-type" => "text/event-stream" }
      WAITING = Hash.new { |queues, name| queues[name] = Queue.new }
      # An event at first, and one for each request to /go.
      class Events
        def initialize(name) = @name = name

        def each
          yield "data: first\n\n"
          (2..).each { |n| yield "data: #{WAITING[@name].pop} #{n}\n\n" }
        end
      end
      # An event for each file, after what the client says that it has heard.
      class News
        def initialize(heard) = @heard = heard.to_i

        def each
          yield "retry: 50\n\n"
          (@heard + 1..).each do |n|
            sleep 0.02 until File.exist?("news-#{n}")
            yield "id: #{n}\ndata: #{n} after #{@heard}\n\n"
          end
        end
      end
      PAGE = <<~HTML
        <!doctype html><title>News</title>
        <script>
          window.heard = [];
          const source = new EventSource("/news");
          source.onmessage = event => window.heard.push(event.data);
        </script>
      HTML
      run(lambda do |env|
        case env["PATH_INFO"]
        when "/page" then [200, { "content-type" => "text/html" }, [PAGE]]
        when "/news" then [200, EVENTS, News.new(env["HTTP_LAST_EVENT_ID"])]
        when "/events" then [200, EVENTS, Events.new(env["QUERY_STRING"])]
        when "/go" then WAITING[env["QUERY_STRING"]] << "next" and [200, {}, ["gone"]]
        end
      end)
    RUBY

    # The body of a response over HTTP/1.1, in the pieces in which it was sent.
    class HTTP1Stream
      def initialize(client, path, coding)
        @client = client
        client.request("GET", path, "Accept: text/event-stream", "Accept-Encoding: #{coding}")
        nil until client.line.empty?
      end

      # @return [String, nil] nil: it has ended in order.
      def piece
        size = @client.line.hex
        bytes = @client.read(size)
        @client.line
        bytes unless size.zero?
      end
    end

    # The same over HTTP/2.
    class HTTP2Stream
      def initialize(client, path, coding)
        @client = client
        client.headers(1, HTTP2Client.get(path, "accept" => "text/event-stream", "accept-encoding" => coding))
      end

      def piece
        loop do
          frame = @client.read or raise "the connection has ended within the stream"
          raise "the stream was reset" if frame.type == HTTP2Client::RST_STREAM
          next unless frame.type == HTTP2Client::DATA
          return frame.payload unless frame.payload.empty?
          return if frame.flags.anybits?(HTTP2Client::END_STREAM)
        end
      end
    end

    # A stream, and what it has said so far.
    Listener = Struct.new(:name, :stream, :decoder, :nothing, :text) do
      def hear(text)
        decode(stream.piece) until self.text.end_with?(text)
      end

      # What the core sends while the app is silent.
      def hear_nothing
        bytes = stream.piece
        decode(bytes)
        bytes
      end

      def hear_end
        while (bytes = stream.piece)
          decode(bytes)
        end
      end

      private

      def decode(bytes) = text << decoder.call(bytes)
    end
    private_constant :APP, :HTTP1Stream, :HTTP2Stream, :Listener

    # Each event arrives before the app writes the next one.
    def test_compressed_streams_are_live_kept_alive_and_ended_in_order
      server = with_server(APP, *FLAGS, "--compress", "--event-stream-keepalive", "0.3", files: FILES, lint: false)
      listeners = DECODERS.keys.product([:http1, :http2]).map { |coding, protocol| listen(server, coding, protocol) }
      asking = tls_client(to: server)
      listeners.each do |listener|
        listener.hear(":\ndata: first\n\n")
        (2..3).each do |n|
          asking.get("/go?#{listener.name}")
          listener.hear("data: next #{n}\n\n")
        end
      end
      listeners.each { |listener| 2.times { assert_equal listener.nothing, listener.hear_nothing, listener.name } }
      server.signal(:TERM)
      listeners.each do |listener|
        listener.hear_end
        assert_match(/\A:\ndata: first\n\ndata: next 2\n\ndata: next 3\n\nretry: \d+\n\n\z/, listener.text, listener.name)
        assert_predicate listener.decoder, :finished? if listener.decoder.respond_to?(:finished?)
      end
    end

    # An EventSource over HTTP/2, compressed since the browser accepts that. When its worker ends, it goes on elsewhere.
    def test_chromium_hears_each_event_once_also_when_workers_restart
      server = with_server(APP, *FLAGS, "--workers", "2", "--compress", files: FILES, lint: false)
      page = Browser.page
      page.command("Security.setIgnoreCertificateErrors", ignore: true)
      page.go_to("https://localhost:#{URI(server.addresses.last).port}/page")
      2.times { |n| publish(server, page, n + 1, ["1 after 0", "2 after 0"].first(n + 1)) }
      restart(server)
      publish(server, page, 3, ["1 after 0", "2 after 0", "3 after 2"])
      news = page.network.traffic.select { |exchange| exchange.url.end_with?("/news") }.filter_map(&:response)
      assert_equal %w[br], news.map { |response| response.headers.transform_keys(&:downcase)["content-encoding"] }.uniq
      assert_equal ["h2"], page.evaluate("performance.getEntries().map(entry => entry.nextHopProtocol).filter(name => name)").uniq
      assert_operator news.size, :>=, 2
    ensure
      page&.close
    end

    private

    def listen(server, coding, protocol)
      name = "#{coding}-#{protocol}"
      stream = protocol == :http1 ? HTTP1Stream.new(tls_client(to: server, timeout: 30), "/events?#{name}", coding) : http2_stream(server, name, coding)
      Listener.new(name, stream, DECODERS.fetch(coding).new, NOTHING.fetch(coding), +"")
    end

    def http2_stream(server, name, coding)
      client = tls_client(to: server) { |context| context.alpn_protocols = ["h2"] }
      HTTP2Stream.new(HTTP2Client.new(client.socket, timeout: 30), "/events?#{name}", coding)
    end

    def publish(server, page, number, heard)
      server.write("news-#{number}", "")
      eventually("event #{number} has come") { page.evaluate("window.heard") == heard }
    end

    def restart(server)
      before = server.worker_pids
      server.restart
      eventually("the end of the workers before") { (server.worker_pids & before).empty? }
    end
  end
end
