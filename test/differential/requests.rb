# frozen_string_literal: true

module Fairlead
  module Differential
    # Requests as no client should send them, and some as it should: put together of parts that servers disagree about,
    # some then with a byte changed. The same seed gives the same requests.
    class Requests
      # Each part is one of those at the front mostly, and sometimes one of the others.
      METHODS = [%w[GET POST PUT], ["OPTIONS", "DELETE", "get", "FROB", "G(T", "", "GET\t", " GET", "PRI", "M-SEARCH"]].freeze
      TARGETS = [%w[/ /a?b=c /path],
                 ["*", "http://a/b", "http://a", "https://a:1/?q", "a", "a:80", "", "/a b", "/%zz", "/\x01", "/\xC3\xA9", "/?q=\xC3\xBC", "//x",
                  "/a#b", "/a\"b", "/<>", "/{}", "/a\\b", "?a", "/a\0", "ftp://a/", "/\x7f", "http://\xC3\xA9/"]].freeze
      VERSIONS = [%w[HTTP/1.1], ["HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "HTTP/0.9", "http/1.1", "HTTP/1.10", "HTTP/1", "HTTP/1.1 ",
                                 "HTTP", "", "HTTP/11", "ICE/1.0"]].freeze
      SPACES = [[" "], ["  ", "\t", "", "\v"]].freeze
      ENDS = [["\r\n"], ["\n", "\r", "\r\r\n", "\n\r", ""]].freeze
      FIELDS = [["X: y", "Accept: */*", "Cookie: a=b; c=d", "X-Forwarded-For: 1.2.3.4"],
                ["X : y", "X\t: y", "X", ": y", " folded", "\tfolded", "X: a\0b", "X: a\x01b", "X\0: y", "X: \x7f", "X Y: z", "X:y",
                 "X:", "X_Y: z", "X\xC3: y", "X: \xC3\xA9", "X: a\tb", "(X): y", "Host: b", "Host: a, b", "Host:", "host : a",
                 "Connection: close", "Connection: keep-alive", "Expect: 100-continue", "Expect: x", "X:  y  ",
                 "Content_Length: 9", "#{"X" * 300}: y"]].freeze
      HOSTS = [["Host: a"], ["Host: a:80", nil, "Host: a/b", "Host: [::1]", "Host: u@a", "HOST: a"]].freeze
      LENGTHS = [["3"], ["0", "03", "+3", "-3", "3, 3", "3,4", "0x3", "3.0", "1_0", "", "3 ", "3\t", "3 0", "\v3", "9999",
                         "18446744073709551619", "٣"]].freeze
      CODINGS = [["chunked"], ["Chunked", "chunked, chunked", "gzip, chunked", "chunked, gzip", "identity", "xchunked", "chunkedx",
                               "\"chunked\"", "chunked;a=b", ", chunked", "chunked,", "", "\vchunked", "chunked\0", "gzip",
                               "identity, chunked"]].freeze
      SIZES = [["3", "3", "003"], ["3;a", "3;a=\"b\"", "3 ", "3 ;a", " 3", "0x3", "+3", "-3", "g", "", "3;\0", "3;a\nb", "3\0", "3_",
                                   "00000000000000003", "10000000000000003", "4", "2"]].freeze
      TRAILERS = [[""], ["X: y\r\n", "X\r\n", "X : y\r\n", " X: y\r\n", "Content-Length: 3\r\n", "X: y\n", "X: \0\r\n"]].freeze
      BYTES = ["\0", "\t", "\n", "\v", "\r", " ", ",", ":", ";", "0", "\x7f", "\xff", "a", "\r\n"].map(&:b).freeze
      NEXT = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n".b.freeze

      def initialize(seed)
        @random = Random.new(seed)
      end

      # @return [String]
      def next
        # The more parts of a request are strange, the more of them hide each other.
        @strange = [0, 0, 0.03, 0.03, 0.1, 0.3][@random.rand(6)]
        bytes = request.b
        bytes << NEXT if @random.rand < 0.7
        change(bytes) if @random.rand < 0.15
        bytes
      end

      private

      def pick(parts)
        parts = parts[@random.rand < @strange ? 1 : 0]
        parts[@random.rand(parts.size)]
      end

      def request
        lines = ["#{pick(METHODS)}#{pick(SPACES)}#{pick(TARGETS)}#{pick(SPACES)}#{pick(VERSIONS)}".b, pick(HOSTS)&.b]
        @random.rand(3).times { lines << pick(FIELDS).b }
        body = framing(lines)
        head = lines.compact.map { |line| line + pick(ENDS) }.join
        "#{"\r\n" if @random.rand < 0.02}".b + head + pick(ENDS) + body
      end

      # Announces a body in some way, and returns one.
      def framing(lines)
        case @random.rand(6)
        when 0, 1
          lines.insert(rand_place(lines), "Content-Length: #{pick(LENGTHS)}".b)
          lines.insert(rand_place(lines), "Content-Length: #{pick(LENGTHS)}".b) if @random.rand < @strange
          "abc".b
        when 2, 3
          lines.insert(rand_place(lines), "Transfer-Encoding: #{pick(CODINGS)}".b)
          lines.insert(rand_place(lines), "Transfer-Encoding: #{pick(CODINGS)}".b) if @random.rand < @strange / 2
          lines.insert(rand_place(lines), "Content-Length: #{pick(LENGTHS)}".b) if @random.rand < @strange / 2
          chunks
        else "".b
        end
      end

      def rand_place(lines) = 2 + @random.rand(lines.size - 1)

      def chunks
        parts = Array.new(1 + @random.rand(2)) { "#{pick(SIZES)}".b + pick(ENDS) + "abc".b + pick(ENDS) }
        parts.join.b + "0".b + pick(ENDS) + pick(TRAILERS).b + pick(ENDS)
      end

      def change(bytes)
        place = @random.rand(bytes.bytesize)
        case @random.rand(3)
        when 0 then bytes[place] = BYTES[@random.rand(BYTES.size)]
        when 1 then bytes.insert(place, BYTES[@random.rand(BYTES.size)])
        else bytes[place, 1 + @random.rand(3)] = "".b
        end
      end
    end
  end
end
