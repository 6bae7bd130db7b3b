# frozen_string_literal: true

require "open3"
require_relative "puma"
require_relative "requests"
require_relative "sent"

module Fairlead
  # Generated requests, given to our parser and to those of others. Where they differ, there is a reason, and it is here.
  module Differential
    # One parser's word on a request; the form is that of test/core/verdicts.c.
    Verdict = Struct.new(:requests, :outcome) do
      def self.of(line)
        *requests, outcome = line.b.split("\t", -1)
        new(requests, outcome)
      end

      def refused = outcome[/\Arefused (\S+)/, 1]

      # @return [Integer] the byte that what we refuse begins at.
      def refused_at = outcome[/\d+\z/].to_i

      def without_fields = self.class.new(requests.map { |request| request[/\A.* /mn] }, outcome)
    end

    # A difference that nobody has explained.
    Difference = Struct.new(:peer, :request, :ours, :theirs) do
      def to_s = "#{peer}: #{request.inspect}\n  ours:   #{ours}\n  theirs: #{theirs}"
    end

    class Comparison
      BATCH = 20_000
      VERDICTS = File.expand_path("../core/build/verdicts", __dir__)

      # What we refuse and a peer takes, when there is cause. RFC 9112 allows each of it to be refused.
      REFUSED_BY_US = {
        "BAD_LINE_ENDING" => ["they take a lone LF for a line's end in places, and any number of empty lines (2.2)", :lines?],
        "BAD_METHOD" => ["they skip bytes before a method, or take any", :method?],
        "BAD_TARGET" => ["they take spaces before it, other schemes, and characters that no target has (3.2)", :target?],
        "BAD_VERSION" => ["Node reads a line without a version as HTTP/0.9, Puma takes any digits", :version?],
        "UNKNOWN_VERSION" => ["they answer other versions as if they were 1.0", :known_version?],
        "BAD_HOST" => ["they leave Host to somebody else: Node's server asks for one, its parser does not", :host?],
        "BAD_HEADER_NAME" => ["Puma takes what is no token, Node reads the name's end otherwise", :names?],
        "BAD_HEADER_VALUE" => ["they take control characters in values, or other bytes (RFC 9110, 5.5)", :values?],
        "FOLDED_HEADER" => ["they unfold (5.2)", :unfolded?],
        "BAD_LENGTH" => ["Puma does not bound the number, and joins equal ones", :length?],
        "BAD_ENCODING" => ["they take empty elements of a list, codings in HTTP/1.0, and others without chunked (6.3)", :encoding?],
        "UNKNOWN_ENCODING" => ["they take gzip before chunked, and do not undo it", :known_encoding?],
        "BAD_CHUNK" => ["Node bounds a size by its value, not by its digits; Puma strips white space around it, skips " \
                        "extensions unread, and takes anything for trailers until an empty line (7.1)", :chunks?],
        "EXPECTATION_FAILED" => ["they pass over an expectation that they do not know (RFC 9110, 10.1.1)", :expectation?]
      }.freeze

      NODE_METHODS = %w[GET POST PUT DELETE OPTIONS M-SEARCH HEAD PATCH].freeze

      # What a peer refuses and we take: when, and why. It is given the bytes, our verdict, and where in it they differ.
      REFUSED_BY_THEM = {
        "node" => [
          ["Node knows a list of methods; any token is one (RFC 9110, 9.1)",
           ->(_, ours, place) { !NODE_METHODS.include?(ours.requests[place].to_s[/\A\S+/]) && ours.requests[place] }],
          ["Node knows 1.0 and 1.1 alone; a later minor version is served as 1.1 (RFC 9110, 2.5)",
           ->(bytes, _, _) { bytes.match?(%r{ HTTP/1\.[2-9]\r}n) }],
          ["Node takes no byte beyond ASCII in a target; Puma and nginx hand it on",
           ->(_, ours, place) { ours.requests[place].to_s.match?(/\A\S+ \S*[\x80-\xff]/n) }],
          ["Node takes no tab behind a length; it is white space like a space (RFC 9110, 5.6.3)",
           ->(bytes, _, _) { bytes.match?(/^Content-Length:[ \t]*\d+ *\t/ni) }],
          ["Node takes no white space between a size and its extension; RFC 9112, 7.1.1 lets one bear it",
           ->(bytes, _, _) { bytes.match?(/\h[ \t]+[;\r]/n) }],
          ["Node reads extensions; here they are dropped, and only what could end their line otherwise is refused",
           ->(bytes, _, _) { bytes.match?(/^\h+;[^\r]*"/n) }],
          ["Node takes no length for a trailer; here it is one, and means nothing (RFC 9110, 6.5.1)",
           ->(bytes, _, _) { bytes.match?(/^0\r\n(?:[^\r]+\r\n)*Content-Length:/ni) }]
        ],
        "puma" => [
          ["Puma takes no name of more than 256 bytes", ->(bytes, _, _) { bytes.match?(/^[^:\r]{257,}:/n) }],
          ["Puma takes no empty line before a request, nor behind the last one (RFC 9112, 2.2)",
           ->(bytes, ours, place) { bytes.match?(/\A\r\n|\r\n\r\n\r\n|c\r\n/n) || (place == ours.requests.size && ours.outcome == "end") }],
          ["Puma takes methods of capital letters alone, up to 20; any token is one (RFC 9110, 9.1)",
           ->(_, ours, place) { !ours.requests[place].to_s.match?(/\A[A-Z_$-]{1,20} /) && ours.requests[place] }]
        ]
      }.freeze

      # Up to this major version of its parser, which Node 18 has, Node skips whatever byte follows the CR of a head's last
      # line, LF or not. Here the CR has begun a line; when that has ended, it is refused (2.2).
      BARE_CR = "Node up to 18 takes a bare CR, and the byte after it, for the end of a head"
      LAST_WITH_BARE_CR = 6
      UNENDED_LINE_WITH_BARE_CR = /\r\n\r[^\n]+\z/n

      # @return [Integer, nil] the major version of the parser of the Node that is installed.
      def self.installed_node
        IO.popen(%w[node --print process.versions.llhttp], &:read)[/\A\d+/]&.to_i
      rescue Errno::ENOENT
        nil
      end

      # @param on_batch [Proc, nil] told how many have been compared.
      # @param node [Integer, nil] the major version of Node's parser; nil: it is not asked.
      def initialize(count, seed:, on_batch: nil, node: self.class.installed_node)
        @count = count
        @requests = Requests.new(seed)
        @on_batch = on_batch
        @node = node
        @found = []
        @same = Hash.new(0)
        @reasons = Hash.new { |hash, peer| hash[peer] = Hash.new(0) }
      end

      # @return [Array<Difference>] those without an explanation.
      attr_reader :found
      # @return [Hash{String => Hash{String => Integer}}] how often each explanation was needed, by peer.
      attr_reader :reasons
      # @return [Hash{String => Integer}] how often a peer said the same.
      attr_reader :same

      def peers = @node ? %w[node puma] : %w[puma]

      def run
        done = 0
        while done < @count
          batch = Array.new([BATCH, @count - done].min) { @requests.next }
          compare(batch)
          done += batch.size
          @on_batch&.call(done)
        end
        self
      end

      private

      def compare(batch)
        input = batch.map { |bytes| [bytes.bytesize].pack("V") + bytes }.join
        ours = ask(input, VERDICTS)
        note_all("node", batch, ours, ask(input, "node", File.join(__dir__, "node.js"))) if @node
        note_all("puma", batch, ours.map(&:without_fields), batch.map { |bytes| Verdict.of(PumaParser.judge(bytes)) })
      end

      def note_all(peer, batch, ours, theirs)
        batch.each_index { |index| note(peer, batch[index], ours[index], theirs[index]) }
      end

      def ask(input, *command)
        output, status = Open3.capture2(*command, stdin_data: input, binmode: true)
        raise "#{command.join(" ")} failed" unless status.success?

        output.split("\n").map { |line| Verdict.of(line) }
      end

      def note(peer, bytes, ours, theirs)
        return @same[peer] += 1 if ours == theirs

        reason = explain(peer, bytes, ours, theirs)
        reason ? @reasons[peer][reason] += 1 : @found << Difference.new(peer, bytes, ours.to_a.join("\t"), theirs.to_a.join("\t"))
      end

      # However the rest is taken: requests that both have read must be the same ones.
      def explain(peer, bytes, ours, theirs)
        both = [ours.requests.size, theirs.requests.size].min
        return unless ours.requests.first(both) == theirs.requests.first(both)
        return "both refuse" if ours.refused && theirs.refused
        return refused_by_us(bytes, ours) if ours.refused
        return "Puma keeps a connection open when Connection is sent twice; close among them ends it (RFC 9112, 9.6)" \
          if peer == "puma" && ours.outcome == "closed" && bytes.scan(/^Connection:/ni).size > 1
        return "Puma ends the connection behind a later minor version, as if it were 1.0 (RFC 9110, 2.5)" \
          if peer == "puma" && theirs.outcome == "closed" && bytes.match?(%r{ HTTP/1\.[2-9]\r}n)
        return BARE_CR if peer == "node" && takes_bare_cr?(bytes, ours, both)
        return unless theirs.refused
        return "a line is judged here once it has ended" if ours.outcome == "more" && ours.requests.size == both

        REFUSED_BY_THEM.fetch(peer).find { |_, applies| applies.call(bytes, ours, both) }&.first
      end

      def refused_by_us(bytes, ours)
        reason, sound = REFUSED_BY_US[ours.refused]
        "#{ours.refused}: #{reason}" if reason && !Sent.new(bytes.byteslice(ours.refused_at..)).public_send(sound)
      end

      # The line that begins with the CR must be the one whose end we wait for.
      def takes_bare_cr?(bytes, ours, place)
        @node <= LAST_WITH_BARE_CR && ours.outcome == "more" && ours.requests.size == place &&
          bytes.match?(UNENDED_LINE_WITH_BARE_CR)
      end
    end
  end
end
