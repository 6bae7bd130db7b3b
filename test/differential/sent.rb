# frozen_string_literal: true

module Fairlead
  module Differential
    # A request as it was sent, taken apart without any server's parser, so far as it takes to say what may be refused of it.
    class Sent
      TOKEN = /[!\#$%&'*+.^_`|~0-9A-Za-z-]/n
      TEXT = /[\t\x20-\x7e\x80-\xff]/n
      # What the other parsers take as well as RFC 3986 does (see ext/fairlead/core/base/characters.c).
      PATH = /[!$%&'()*+,.\/0-9:;=@A-Z\[\\\]^_`a-z{|}~\x80-\xff-]/n
      AUTHORITY = /(?:\[::\h{1,4}\]|(?:[!$&'()*+,.0-9;=A-Z_a-z~-]|%\h\h)+)(?::\d{0,4}|:[1-5]\d{4})?/n
      TARGET = %r{\A(?:/|https?://#{AUTHORITY}(?=[/?]|\z))#{PATH}*(?:\?(?:#{PATH}|\?)*)?\z}n
      SIZE_LINE = /\A\h{1,8}(?:[ \t]*;[ \t]*#{TOKEN}#{TEXT}*)?\r\n/n
      TRAILERS = /\A(?:#{TOKEN}+:#{TEXT}*\r\n)*\r\n/n
      private_constant :TOKEN, :TEXT, :PATH, :AUTHORITY, :TARGET, :SIZE_LINE, :TRAILERS

      # @param bytes [String] from its first byte on, and what follows it.
      def initialize(bytes)
        @bytes = bytes.sub(/\A(?:\r\n){1,2}/n, "") # RFC 9112, 2.2
        @head, @body = @bytes.split("\r\n\r\n", 2)
        lines = @head.to_s.split("\r\n", -1)
        lines.pop unless @body # it has not ended
        @line, *@fields = lines
        @line = @line.to_s
      end

      def method? = @bytes.match?(/\A#{TOKEN}{1,32} /n)
      def version? = @line.match?(%r{\A[^ ]+ .* HTTP/\d\.\d\z}mn)
      def known_version? = @line.match?(%r{ HTTP/1\.\d\z}n)
      def names? = @fields.all?(/\A#{TOKEN}+:/n)
      def values? = @fields.none?(/:.*[\0-\x08\x0a-\x1f\x7f]/mn)
      def unfolded? = @fields.none?(/\A[ \t]/n)
      def lines? = !@head.to_s.match?(/(?<!\r)\n/n)
      def expectation? = named("Expect").all?(/\A100-continue\z/ni)

      def target?
        method, target = @line.match(%r{\A([^ ]+) (.*) HTTP/\d\.\d\z}mn)&.captures
        target&.match?(TARGET) || (method == "OPTIONS" && target == "*")
      end

      def host?
        hosts = named("Host")
        hosts.all?(/\A(?:#{AUTHORITY})?\z/n) && (hosts.size == 1 || (hosts.empty? && old?))
      end

      def length? = named("Content-Length").then { |lengths| lengths.size < 2 && lengths.all?(/\A\d{1,19}\z/n) }

      # Whether it is known where the body ends, if by nobody here how it is coded.
      def encoding?
        return true if codings.empty?

        codings.all?(/\A#{TOKEN}+\z/n) && codings.index { |coding| coding.match?(/\Achunked\z/ni) } == codings.size - 1 &&
          !old? && named("Content-Length").empty?
      end

      def known_encoding? = codings.all?(/\Achunked\z/ni)

      # Whether all of its chunks are there, and as they should be.
      def chunks?
        rest = @body.to_s
        return true if codings.empty?

        while (line = rest[SIZE_LINE])
          rest = rest.byteslice(line.bytesize..)
          return rest.match?(TRAILERS) if line.hex.zero?
          return false unless rest.byteslice(line.hex, 2) == "\r\n"

          rest = rest.byteslice((line.hex + 2)..)
        end
        false
      end

      private

      def old? = @line.end_with?(" HTTP/1.0")

      def named(name) = @fields.filter_map { |field| field[/\A#{name}:[ \t]*(.*?)[ \t]*\z/mni, 1] }

      def codings
        named("Transfer-Encoding").flat_map { |value| value.empty? ? [""] : value.split(/[ \t]*,[ \t]*/n, -1) }
      end
    end
  end
end
