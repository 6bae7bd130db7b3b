# frozen_string_literal: true

require "protocol/hpack"
require_relative "../http2_client"
require_relative "client"

module Fairlead
  class Crosstalk
    # A client of HTTP/2: it asks several times at once on each connection, and resets some of its streams.
    class Streams < Client
      # A connection that reads whole heads, sends bodies as far as the windows allow, and opens a window for what has come.
      class Connection < HTTP2Client
        FRAME, WINDOW = 16_384, 65_535
        private_constant :FRAME, :WINDOW

        def initialize(...)
          @context = Protocol::HPACK::Context.new
          @heads = {}
          @windows = Hash.new(WINDOW)
          super
        end

        # @return [Array<Array(String, String)>, nil] the final head of a response; nil: none has come.
        def head(id) = @heads[id]

        # @return [Boolean] whether the response has come whole, or the stream was reset.
        def over?(id) = @over.key?(id)

        # @return [Boolean] whether the server has reset the stream.
        def reset?(id) = @over[id] == :reset

        # @return [String] what has come of a body.
        def received(id) = @bodies[id]

        # Resets a stream: what comes of it is no matter from here on.
        def leave(id)
          reset(id)
          @over[id] = :left
        end

        def left?(id) = @over[id] == :left

        # Sends a piece of the body, as large as the windows allow, and its end.
        #
        # @return [Integer] bytes.
        def upload(id, body, sent)
          size = [FRAME, body.bytesize - sent, @windows[id], @windows[0]].min
          return 0 if size <= 0

          @windows[id] -= size
          @windows[0] -= size
          data(id, body.byteslice(sent, size), sent + size == body.bytesize ? END_STREAM : 0)
          size
        end

        private

        def note(frame)
          case frame.type
          when HEADERS then note_head(frame)
          when WINDOW_UPDATE then @windows[frame.id] += frame.payload.unpack1("N")
          when RST_STREAM then @over[frame.id] ||= :reset
          else super
          end
          @over[frame.id] ||= true if frame.type <= HEADERS && frame.flags.anybits?(END_STREAM)
          give_windows(frame) if frame.type == DATA && !frame.payload.empty?
        end

        def note_head(frame)
          fields = Protocol::HPACK::Decompressor.new(frame.payload, @context).decode
          @heads[frame.id] = fields unless fields.assoc(":status")&.last == "103"
        end

        def give_windows(frame)
          window(0, frame.payload.bytesize)
          window(frame.id, frame.payload.bytesize) unless over?(frame.id)
        end
      end

      # Ways that take over the connection.
      ONLY_HTTP1 = %w[/hijack /partial].freeze
      private_constant :ONLY_HTTP1

      private

      # Some rounds of requests on one connection.
      def converse(ends)
        @streams = Connection.new(connect, timeout: @patience)
        @id = -1
        @dice.rand(1..10).times do
          requests = Array.new(@dice.rand(1..8)) { new_request }.to_h { |request| [@id += 2, request] }
          requests.each { |id, request| begin_request(id, request) }
          return leave if one_in(25)

          exchange(requests)
          return if @streams.ended || @streams.goaway || Process.clock_gettime(Process::CLOCK_MONOTONIC) > ends
        end
      rescue EOFError, SystemCallError, OpenSSL::SSL::SSLError
        @outcomes["cut"] += 1
      rescue Foreign, RuntimeError => error
        note(error)
      ensure
        @streams&.close
      end

      def new_request
        request = super until request && !ONLY_HTTP1.include?(request.path)
        request
      end

      def begin_request(id, request)
        path = "#{request.path}?#{request.token}&#{request.count}"
        return @streams.headers(id, HTTP2Client.get(path)) unless request.body

        length = [["content-length", request.body.bytesize.to_s]] if one_in(2)
        @streams.headers(id, HTTP2Client.post(path, *length), HTTP2Client::END_HEADERS)
      end

      # Sends their bodies, and reads their responses, until all are over.
      def exchange(requests)
        sent = requests.transform_values { 0 }
        until (open = requests.keys.reject { |id| @streams.over?(id) }).empty?
          return requests.each_key { @outcomes["cut"] += 1 } if @streams.ended

          @streams.leave(open.delete(open.sample(random: @dice))) if one_in(200)
          next if open.empty?

          uploads = open.select { |id| sent[id] < requests[id].body.to_s.bytesize }
          moved = uploads.sum { |id| @streams.upload(id, requests[id].body, sent[id]).tap { |size| sent[id] += size } }
          moved.positive? ? @streams.drain : read(requests, open)
        end
        requests.each { |id, request| check_response(id, request) }
      end

      def read(requests, open)
        @streams.read
      rescue RuntimeError => error
        raise "#{error.message}: #{requests.slice(*open).map { |id, request| "#{id} #{request.path} #{request.token}" }.join(", ")}"
      end

      def check_response(id, request)
        return @outcomes["left"] += 1 if @streams.left?(id)

        fields = @streams.head(id)
        return @outcomes["cut"] += 1 if @streams.reset?(id) && check(request, @streams.received(id), 0)

        foreign(request, "no head") if fields.nil?
        check_head(request, fields)
        status = Integer(fields.assoc(":status").last, 10)
        unless REFUSED.include?(status)
          foreign(request, "status #{status}: #{@streams.received(id)[0, 200]}") unless status == 200
          check_body(request, @streams.received(id), fields)
        end
        @outcomes[status.to_s] += 1
      end

      def check_head(request, fields)
        others = fields.flatten.join(" ").scan(TOKEN) - [request.token]
        foreign(request, "the fields #{fields}") unless others.empty?
        foreign(request, "no token in #{fields}") if fields.assoc(":status")&.last == "200" && fields.assoc("x-token").nil?
      end

      def leave
        sleep(@dice.rand * 0.005) if one_in(2)
        @outcomes["left"] += 1
      end
    end
  end
end
