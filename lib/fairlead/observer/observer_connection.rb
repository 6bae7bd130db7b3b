# frozen_string_literal: true

require "io/wait"

module Fairlead
  # A connection to the observer process: HTTP/1.1 with requests that have no body. What a client may take is bounded: the size of a
  # request's head, and the time to send it and to take the response.
  class ObserverConnection
    HEAD = 16 << 10
    PATIENCE = 5.0 # seconds to send a request, and to take its response
    IDLE = 120.0 # seconds between two requests
    REASONS = {
      200 => "OK", 400 => "Bad Request", 401 => "Unauthorized", 404 => "Not Found", 405 => "Method Not Allowed",
      421 => "Misdirected Request", 431 => "Request Header Fields Too Large", 500 => "Internal Server Error",
      503 => "Service Unavailable"
    }.freeze
    START = %r{\A([A-Z]{1,20}) (/[!-~]*) HTTP/1\.([01])\z}
    FIELD = /\A([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*\z/
    private_constant :HEAD, :PATIENCE, :IDLE, :REASONS, :START, :FIELD

    # @!attribute path [String] without the query.
    # @!attribute headers [Hash{String => String}] names in lower case; of equal ones the last.
    Request = Data.define(:method, :path, :query, :headers, :version) do
      def persistent? = version == "1" && !headers["connection"].to_s.downcase.include?("close") && !body?
      def body? = headers.fetch("content-length", "0") != "0" || headers.key?("transfer-encoding")
    end

    # @return [Boolean] whether a request is answered, or the first one awaited.
    def busy? = @busy

    # @return [Float] when it last began to wait for its client.
    attr_reader :since

    def initialize(socket)
      @socket = socket
      @buffer = +"".b
      @since = Clock.now
      @busy = true
    end

    # Answers its requests until it closes.
    #
    # @yieldparam request [Request]
    # @yieldreturn [Array(Integer, Hash, String)] status, headers and body.
    def serve(&)
      patience = PATIENCE
      while (head = read_head(patience))
        @busy = true
        break unless respond(head, &)

        @busy = false
        patience = IDLE
      end
    rescue IOError, SystemCallError
      nil # the client has gone
    ensure
      @socket.close
    end

    # Has {#serve} end. May be called from any thread.
    def evict
      @socket.shutdown
    rescue IOError, SystemCallError
      nil
    end

    private

    # @return [String, nil] nil: the client has gone, or has taken too long.
    def read_head(patience)
      @since = Clock.now
      deadline = nil
      loop do
        deadline ||= Clock.now + PATIENCE unless @buffer.empty?
        head = take_head and return head

        wait = deadline ? deadline - Clock.now : patience
        return unless wait.positive? && @socket.wait_readable(wait)

        chunk = @socket.read_nonblock(HEAD, exception: false) or return
        @buffer << chunk unless chunk == :wait_readable
      end
    end

    # @return [String, nil] "": it is too large.
    def take_head
      ending = @buffer.index("\r\n\r\n")
      return ("" if @buffer.bytesize > HEAD) unless ending

      @buffer.slice!(0, ending + 4)
    end

    # @return [Boolean] whether the connection stays.
    def respond(head)
      request = parse(head)
      status, headers, body = request ? yield(request) : refusal(head)
      stays = request&.persistent? || false
      fields = { "content-length" => body.bytesize, "cache-control" => "no-store", "x-content-type-options" => "nosniff",
                 "connection" => stays ? "keep-alive" : "close", **headers }
      write("HTTP/1.1 #{status} #{REASONS.fetch(status, "")}\r\n#{fields.map { |name, value| "#{name}: #{value}\r\n" }.join}\r\n" \
            "#{body unless request&.method == "HEAD"}")
      stays
    end

    def refusal(head) = [head.empty? ? 431 : 400, { "content-type" => "text/plain" }, "Bad Request\n"]

    def parse(head)
      line, *lines = head.split("\r\n")
      method, target, version = line.to_s.match(START)&.captures
      fields = lines.map { |field| field.match(FIELD)&.captures }
      return if method.nil? || fields.include?(nil)

      path, query = target.split("?", 2)
      Request.new(method:, path:, query: query.to_s, headers: fields.to_h { |name, value| [name.downcase, value] }, version:)
    end

    # @raise [IOError] if the client does not take it in time.
    def write(text)
      deadline = Clock.now + PATIENCE
      text = text.b
      until text.empty?
        written = @socket.write_nonblock(text, exception: false)
        next text = text.byteslice(written..) if written.is_a?(Integer)

        wait = deadline - Clock.now
        raise IOError, "the client does not read" unless wait.positive? && @socket.wait_writable(wait)
      end
    end
  end
end
