# frozen_string_literal: true

require_relative "../http_client"
require_relative "../tls_client"

module Fairlead
  class Crosstalk
    # One client: it asks in every way there is, checks every byte it gets, and goes at random, whatever is under way.
    class Client
      # A response that is not of its request alone.
      Foreign = Class.new(StandardError)
      Request = Struct.new(:path, :token, :count, :body)

      # How often each way is asked for.
      WEIGHTS = {
        "/fixed" => 60, "/pieces" => 20, "/parts" => 6, "/large" => 1, "/changing" => 4, "/sleep" => 12, "/offload" => 4,
        "/stream" => 10, "/live" => 8, "/thread" => 4, "/task" => 3, "/hub" => 3, "/echo" => 6, "/echo-parts" => 3, "/hijack" => 3, "/partial" => 3,
        "/blocks" => 1, "/holds" => 0.4, "/collect" => 0.3, "/fork" => 0.15, "/system" => 0.15, "/late" => 0.4
      }.flat_map { |path, weight| [path] * (weight * 20).round }.freeze
      # Those of which the client knows how long they are.
      WHOLE = %w[/fixed /pieces /sleep /offload /blocks /holds /collect /fork /system /late /task /hub].freeze
      TOKEN = /T[0-9a-f]{10}/
      # What is answered without the app: its time is up, or there are too many.
      REFUSED = [503, 504].freeze
      private_constant :WEIGHTS, :WHOLE, :TOKEN, :REFUSED

      # @return [Hash{String => Integer}] what came of its requests.
      attr_reader :outcomes
      # @return [Array<String>]
      attr_reader :faults

      # @param protocol [String, nil] what it negotiates over TLS, "http/1.1" or "h2"; nil: it speaks HTTP/1 in the clear.
      # @param patience [Numeric] seconds without a byte; a request waits for its turn for 30 at most (queue_timeout).
      # @yieldreturn [String, nil] what the server says of itself, where it does not answer.
      def initialize(port, seed, protocol: nil, patience: 45, &state)
        @port = port
        @protocol = protocol
        @dice = Random.new(seed)
        @patience = patience
        @state = state
        @outcomes = Hash.new(0)
        @faults = []
      end

      # @param ends [Float] monotonic: when no other request shall begin.
      def run(ends)
        converse(ends) while Process.clock_gettime(Process::CLOCK_MONOTONIC) < ends
        self
      end

      private

      # Some requests on one connection, some of them behind each other at once.
      def converse(ends)
        @http = HTTPClient.new(connect, timeout: @patience)
        requests = nil
        @dice.rand(1..40).times do
          requests = Array.new(one_in(5) ? @dice.rand(2..4) : 1) { new_request }
          @http.write_as_taken(requests.map { |request| bytes_of(request) }.join)
          return leave if one_in(25)

          requests.each { |request| receive(request) or return }
          return if Process.clock_gettime(Process::CLOCK_MONOTONIC) > ends
        end
      rescue EOFError, SystemCallError, OpenSSL::SSL::SSLError
        @outcomes["cut"] += 1
      rescue Foreign, RuntimeError => error
        note(error, requests&.map { |request| "#{request.path}?#{request.token}&#{request.count} (#{request.body&.bytesize})" }&.join(", "))
      ensure
        @http&.close unless @http.nil? || @http.socket.closed?
      end

      def connect
        socket = TCPSocket.new("127.0.0.1", @port)
        return socket unless @protocol

        TLSSocket.new(socket) do |context|
          context.set_params(cert_store: SpeaksHTTPS.certificates.store)
          context.alpn_protocols = [@protocol]
        end
      end

      def new_request
        path = WEIGHTS.sample(random: @dice)
        token = format("T%010x", @dice.rand(1 << 40))
        count = @dice.rand(1..40)
        body = token * @dice.rand(one_in(8) ? 1..12_000 : 1..500) if path.start_with?("/echo")
        Request.new(path, token, count, body)
      end

      def bytes_of(request)
        head = "#{request.body ? "POST" : "GET"} #{request.path}?#{request.token}&#{request.count} HTTP/1.1\r\nHost: a\r\n"
        return "#{head}\r\n" unless request.body
        return "#{head}Content-Length: #{request.body.bytesize}\r\n\r\n#{request.body}" if @dice.rand < 0.5

        chunks = request.body.scan(/.{1,4000}/m).map { |chunk| "#{chunk.bytesize.to_s(16)}\r\n#{chunk}\r\n" }.join
        "#{head}Transfer-Encoding: chunked\r\n\r\n#{chunks}0\r\n\r\n"
      end

      # @return [Boolean] whether the connection goes on.
      def receive(request)
        status, fields = head(request)
        status, fields = head(request) while status == 103
        body = REFUSED.include?(status) ? @http.read(Integer(fields.assoc("content-length").last, 10)) : body(request, fields)
        unless REFUSED.include?(status)
          foreign(request, "status #{status}: #{body[0, 200]}") unless status == 200
          check_body(request, body, fields)
        end
        @outcomes[status.to_s] += 1
        fields.none? { |name, value| name == "connection" && value == "close" } && !@http.socket.closed?
      end

      # Every token in it is the request's own.
      def head(request)
        version, status, = (line = @http.line).split(" ", 3)
        foreign(request, "the line #{line.inspect}") unless version == "HTTP/1.1" && status.to_s.match?(/\A\d{3}\z/)
        fields = []
        until (line = @http.line).empty?
          foreign(request, "the field #{line[0, 200].inspect}") unless line.match?(/\A[a-z-]+: /)
          others = line.scan(TOKEN) - [request.token]
          foreign(request, "the field #{line[0, 200].inspect}") unless others.empty?
          fields << line.split(": ", 2)
        end
        foreign(request, "no token in #{fields}") if status == "200" && fields.assoc("x-token").nil?
        [status.to_i, fields]
      end

      def body(request, fields)
        return chunks(request) if fields.assoc("transfer-encoding")&.last == "chunked"
        return @http.rest unless (size = fields.assoc("content-length")&.last)

        part(request, +"".b, Integer(size, 10))
      end

      def chunks(request)
        body = +"".b
        loop do
          size = @http.line
          foreign(request, "a chunk of #{size[0, 100].inspect}") unless size.match?(/\A\h+\z/)
          part(request, body, size.hex)
          foreign(request, "no end of a chunk") unless @http.line.empty?
          return body if size == "0"
        end
      end

      # Now and then it goes within a response; what has come until then has to be right, too.
      def part(request, body, size)
        @http.read([size, 5000].min).then { |bytes| check(request, bytes, body.bytesize) } and raise(EOFError) if size > 5000 && one_in(100)

        body << @http.read(size)
      rescue EOFError
        check(request, body, 0)
        raise
      end

      def check_body(request, body, fields)
        check(request, body, 0)
        expected = request.body&.bytesize
        expected = request.token.size * request.count if WHOLE.include?(request.path)
        foreign(request, "#{body.bytesize} bytes instead of #{expected}, #{fields}") if expected && body.bytesize != expected
      end

      def check(request, bytes, offset)
        token = request.token
        pattern = (token * ((bytes.bytesize / token.size) + 2)).byteslice(offset % token.size, bytes.bytesize)
        return true if bytes == pattern

        at = (0...bytes.bytesize).find { |index| bytes.getbyte(index) != pattern.getbyte(index) }
        foreign(request, "#{bytes.byteslice([at - 20, 0].max, 80).inspect} at #{offset + at}")
      end

      def note(error, requests = nil)
        @faults << [error.message, requests].compact.join(": ")
        state = @state&.call unless error.is_a?(Foreign)
        @faults << state if state
      end

      def foreign(request, what) = raise(Foreign, "#{request.path} #{request.token} #{request.count}: #{what}")

      def leave
        sleep(@dice.rand * 0.005) if one_in(2)
        one_in(2) ? @http.reset : @http.close
        @outcomes["left"] += 1
      end

      def one_in(count) = @dice.rand(count).zero?
    end
  end
end
