# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # The cases of test/core/smuggling.txt over real sockets, with the whole server behind them: in one piece, cut in the
  # middle and before the last byte, and byte by byte. Every cut is tried by test/core/test_smuggling.c.
  class SmugglingTest < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      run(lambda do |env|
        env["rack.input"]&.read
        [200, { "content-type" => "text/plain" }, [env["PATH_INFO"]]]
      end)
    RUBY

    # How the file is written is told at its top.
    class Cases
      ESCAPES = { "r" => "\r", "n" => "\n", "t" => "\t", "v" => "\v", "0" => "\0", "\\" => "\\" }.freeze

      # @return [Array<Array(String, Array<String>, String)>] name, what is answered, bytes.
      def self.all = new.all

      def all
        @words = {}
        rule = nil
        File.readlines(File.join(Test::ROOT, "test/core/smuggling.txt"), chomp: true).filter_map do |line|
          case line
          when "", /\A#/ then next
          when /\A= (.*)/ then rule = $1 and next
          when /\Adefine (\S+) +(.*)/ then (@words[$1] = expand($2)) and next
          end
          answered, name, bytes = line.split("|", 3)
          ["#{rule[/\ARFC \d+, [\d.]+/]} #{name.strip}", answered.split, expand(bytes.delete_prefix(" "))]
        end
      end

      private

      def expand(text)
        text.b.gsub(/\{(?:(?<text>[^}]*)\*(?<times>\d+)|(?<word>[^}]*))\}|\\x(?<byte>\h\h)|\\(?<escape>.)/n) do
          found = $~
          if found[:times] then expand(found[:text]) * Integer(found[:times], 10)
          elsif found[:word] then @words.fetch(found[:word])
          elsif found[:byte] then found[:byte].hex.chr
          else ESCAPES.fetch(found[:escape])
          end
        end
      end
    end

    def server
      shared_server(APP, "--request-line", "300", "--head-size", "1500", "--headers", "20", "--body-size", "1000")
    end

    def test_there_are_as_many_as_there_should_be
      assert_operator Cases.all.size, :>=, 250
      assert_empty Cases.all.map(&:first).grep_v(/\ARFC \d+, \d/), "each has the rule that it is about"
    end

    Cases.all.each_with_index do |(name, answered, bytes), number|
      define_method("test_#{format("%03d", number)}_#{name.gsub(/[^A-Za-z0-9.]+/, "_")}") do
        answered = answered - ["…"]
        [bytes.bytesize, bytes.bytesize / 2, bytes.bytesize - 1].uniq.each do |cut|
          assert_equal answered, answers(bytes.byteslice(0, cut), bytes.byteslice(cut..)), "cut at #{cut} of #{bytes.bytesize}"
        end
      end
    end

    # All at once, a byte of each in turn, so that the server sees to each before its next one comes.
    def test_byte_by_byte
      cases = Cases.all.map { |name, answered, bytes| [name, answered - ["…"], bytes, client] }
      cases.map { |_, _, bytes| bytes.bytesize }.max.times do |place|
        cases.each { |_, _, bytes, client| client.write_as_taken(bytes[place]) if place < bytes.bytesize }
      end
      cases.each { |_, _, _, client| client.close_write_as_taken }
      cases.each { |name, answered, _, client| assert_equal answered, read_answers(client), name }
    end

    private

    def answers(*pieces)
      client = client()
      pieces.each { |piece| client.write_as_taken(piece) unless piece.empty? }
      client.close_write_as_taken
      read_answers(client)
    ensure
      client.close
    end

    # All until the server ends the connection: it has heard all that will come.
    def read_answers(client)
      found = []
      while (answer = client.response)
        next if answer.status < 200

        found << (answer.body == "/next" ? "next" : answer.status.to_s)
        flunk "a smuggled request was served" if answer.body == "/smuggled"
      end
      found
    end
  end
end
