# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # Parsers in C that call Ruby back, in requests that wait meanwhile: each request gets its own errors and its own text.
  # Covers fiber_safety/callbacks.rb
  class CallbacksTest < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      require "nokogiri"

      # Comes slowly.
      def pipe(text)
        reader, writer = IO.pipe
        Thread.new { text.scan(/.{1,200}/m) { |piece| writer.write(piece); sleep 0.001 } && writer.close }
        reader
      end

      class Functions
        def slow(nodes) = sleep(0.005) && nodes
        def failing(nodes) = sleep(0.005) && raise(ArgumentError, "no")
      end
      Nokogiri::XSLT.register("urn:slow", Class.new { def slow = sleep(0.01) && "s" })
      STYLE = Nokogiri::XSLT(<<~XSLT)
        <xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform" xmlns:f="urn:slow" extension-element-prefixes="f">
          <xsl:template match="/"><a><xsl:value-of select="f:slow()"/><xsl:value-of select="f:slow()"/></a></xsl:template>
        </xsl:stylesheet>
      XSLT
      # As some gems' inputs: an object that reads.
      Source = Struct.new(:io) { def read(length) = io.read(length) }
      Failing = Struct.new(:io) { def read(length) = io.read(length) || raise(IOError, "gone") }

      XML = ->(bad) { "<list>#{"<item>one</item>" * 400}#{"<broken>" if bad}</list>" }
      WAYS = {
        "/document" => ->(bad) { Nokogiri::XML::Document.parse(pipe(XML[bad]), &:strict).css("item").size },
        "/source" => ->(bad) { Nokogiri::XML(Source.new(pipe(XML[bad]))) { |config| config.strict }.css("item").size },
        "/large" => ->(bad) { Nokogiri::XML::Document.parse(Source.new(StringIO.new(XML[bad] + " " * 1_500_000)), &:strict).css("item").size },
        "/failing" => ->(bad) { Nokogiri::XML::Document.parse((bad ? Failing.new(pipe(XML[false][0..5000])) : pipe(XML[false])), &:strict).css("item").size },
        "/reader" => ->(bad) { Nokogiri::XML::Reader(pipe("<list>#{"<item/>" * 40}#{"<broken>" if bad}</list>")).count == 42 ? 400 : 0 },
        "/sax" => lambda do |bad|
          handler = Class.new(Nokogiri::XML::SAX::Document) do
            attr_reader :count, :errors
            def error(text) = (@errors ||= []) << text
            def start_element(name, *) = name == "item" && (@count = (@count || 0) + 1) % 50 == 0 && sleep(0.001)
          end.new
          Nokogiri::XML::SAX::Parser.new(handler).parse(pipe(XML[bad]))
          handler.errors ? raise(Nokogiri::XML::SyntaxError, handler.errors.first) : handler.count
        end,
        "/html" => lambda do |bad|
          found = Nokogiri::HTML4(pipe("<p>#{"<b>x</b>" * 400}#{"<nonsense></p></i>" if bad}"))
          found.errors.any? ? raise(Nokogiri::XML::SyntaxError, found.errors.first.to_s) : found.css("b").size
        end,
        "/encoded" => lambda do |bad|
          text = "<html><head><meta charset='iso-8859-1'></head><body><p>\xE9</p>#{"<b>x</b>" * 400}".b
          found = Nokogiri::HTML4(pipe(text))
          found.at_css("p").text == "é" && !bad ? found.css("b").size : raise(Nokogiri::XML::SyntaxError, "")
        end,
        "/xpath" => lambda do |bad|
          document = Nokogiri::XML(XML[false])
          document.xpath("//item[position() < 4][slow(.)]#{"[unknown(.)]" if bad}", Functions.new)
          document.xpath("//item[failing(.)]", Functions.new) rescue ArgumentError
          400
        end,
        "/xslt" => ->(bad) { STYLE.transform(Nokogiri::XML(XML[bad], &:strict)).root.text == "ss" ? 400 : 0 }
      }
      run(lambda do |env|
        bad = env["QUERY_STRING"] == "bad"
        count = if env["PATH_INFO"] == "/body"
                  File.write("begun", "")
                  Nokogiri::XML::Document.parse(env["rack.input"], &:strict).css("item").size
                else
                  WAYS.fetch(env["PATH_INFO"]).call(bad)
                end
        [200, {}, [count.to_s]]
      rescue Nokogiri::XML::SyntaxError, Nokogiri::XML::XPath::SyntaxError
        [422, {}, ["refused"]]
      end)
    RUBY

    %w[document source large failing reader sax html xpath xslt].each do |way|
      define_method("test_#{way}_gives_each_request_its_own_result") do
        answers = in_threads(8) { |n| Array.new(4) { |k| %w[good bad][(n + k) % 2].then { |kind| [kind, ask("#{way}?#{kind}")] } } }
        wrong = answers.flatten(1).reject { |kind, answer| answer == (kind == "bad" ? "refused" : "400") }
        assert_empty wrong, server.end_of_log
      end
    end

    def test_an_encoding_is_found_in_what_comes_slowly
      assert_equal ["400"], in_threads(4) { ask("encoded?good") }.uniq
    end

    # The parser of the first request is amid its document while the other one parses its own.
    def test_a_body_that_comes_slowly_is_parsed_as_if_it_were_there
      text = "<list>#{"<item>one</item>" * 2000}<broken></list>"
      client = client()
      client << "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: #{text.bytesize}\r\n\r\n#{text[0...20_000]}"
      eventually("its request has begun") { File.exist?(server.path("begun")) }
      assert_equal "400", ask("document?good")
      assert_equal "refused", ask("document?bad")
      client << text[20_000..]
      assert_equal [422, "refused"], client.response.then { |answer| [answer.status, answer.body] }
    end

    def server
      shared_server(APP, "--body-buffer", "100", "--stream-request-bodies")
    end

    private

    def ask(target) = server.get("/#{target}").body

    def in_threads(count, &block) = Array.new(count) { |n| Thread.new { block.call(n) } }.map(&:value)
  end
end
