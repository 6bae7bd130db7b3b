# frozen_string_literal: true

require "digest"
require "stringio"
require "tempfile"

module Fairlead
  # Ways of reading a body. The server's app and a test have them read the same bytes: the app from `rack.input`, the test from a
  # file.
  module BodyReadings
    SOURCE = <<~'RUBY'
      READINGS = {
        "read" => ->(io) { io.read },
        "read-pieces" => ->(io) { parts = []; while (part = io.read(777)) do parts << part; end; parts },
        "read-zero" => ->(io) { [io.read(0), io.read(1), io.read(0, +"x")] },
        "read-buffer" => ->(io) { buffer = +"old"; io.read(5, buffer); [buffer, io.read, io.read(5, buffer), buffer] },
        "readpartial" => ->(io) { all = "".b; begin; loop { all << io.readpartial(700) }; rescue EOFError; all; end },
        "gets" => ->(io) { lines = []; while (line = io.gets) do lines << line; end; lines },
        "gets-chomp" => ->(io) { lines = []; while (line = io.gets(chomp: true)) do lines << line; end; lines },
        "gets-all" => ->(io) { [io.gets(nil), io.gets(nil)] },
        "gets-all-limited" => ->(io) { parts = []; while (part = io.gets(nil, 3000)) do parts << part; end; parts },
        "gets-limited" => ->(io) { lines = []; while (line = io.gets(5)) do lines << line; end; lines },
        "gets-separated" => ->(io) { lines = []; while (line = io.gets("li", 300)) do lines << line; end; lines },
        "gets-zero" => ->(io) { [io.gets(0), io.gets] },
        "paragraphs" => ->(io) { lines = []; while (line = io.gets("")) do lines << line.strip; end; lines },
        "each" => ->(io) { lines = []; io.each { |line| lines << line }; lines },
        "each_line" => ->(io) { io.each_line.to_a },
        "each_line-arguments" => ->(io) { io.each_line("e", 40, chomp: true).to_a },
        "readlines" => ->(io) { io.readlines },
        "readlines-chomp" => ->(io) { io.readlines(chomp: true) },
        "readline" => ->(io) { lines = []; begin; loop { lines << io.readline }; rescue EOFError; lines << "end"; end },
        "characters" => ->(io) { [io.getc, io.getbyte, io.readchar, io.readbyte, io.pos, io.read] },
        "each_byte" => ->(io) { io.each_byte.sum },
        "each_char" => ->(io) { io.each_char.first(5) },
        "ungetbyte" => ->(io) { first = io.getbyte; io.ungetbyte(first); [io.pos, io.read] },
        "lineno" => ->(io) { 3.times { io.gets }; io.lineno },
        "positions" => ->(io) { [io.pos, io.read(7), io.pos, io.eof?, io.read, io.pos, io.eof?] },
        "encoding" => ->(io) { [io.external_encoding.to_s, io.read.encoding.to_s, io.closed?, io.tty?] },
        "copy" => ->(io) { target = StringIO.new("".b); IO.copy_stream(io, target); target.string },
        "map" => ->(io) { io.first(2) + io.map(&:size) }
      }
      AGAIN = {
        "size" => ->(io) { [io.size, io.read(3), io.size] },
        "rewind" => ->(io) { [io.read, io.rewind, io.read, io.rewind, io.gets] },
        "rewind-early" => ->(io) { [io.read(10), io.rewind, io.gets, io.read] },
        "seek" => ->(io) { io.seek(-10, IO::SEEK_END); [io.read, io.seek(5), io.read(5), io.pos = 2, io.gets] },
        "pread" => ->(io) { [io.read(3), io.pread(10, 4), io.pos] }
      }
      DIGEST = ->(result) { Digest::SHA256.hexdigest(Marshal.dump(result.then { |all| all.is_a?(Array) ? all.map { |one| one.is_a?(String) ? one.b : one } : all })) }
    RUBY
    module_eval(SOURCE)
    FILES = { "readings.rb" => SOURCE }.freeze
    APP = <<~'RUBY'
      require "digest"
      require_relative "readings"
      run(lambda do |env|
        name = env["PATH_INFO"].delete_prefix("/")
        [200, { "content-type" => "text/plain" }, [DIGEST.call(READINGS.merge(AGAIN).fetch(name).call(env["rack.input"]))]]
      end)
    RUBY
    FORWARD = READINGS.keys.freeze
    NAMES = (READINGS.keys + AGAIN.keys).freeze

    # A server that keeps bodies of so many bytes in memory reads shorter and longer ones as a file is read.
    def assert_reads_as_a_file(names, buffer, *flags)
      server = with_server(APP, "--body-buffer", buffer.to_s, *flags, lint: false, files: FILES)
      [buffer - 1, buffer * 5].product(names, [false, true]) do |size, name, chunked|
        next if chunked && size < buffer

        assert_equal BodyReadings.expected(name, BodyReadings.body(size)), BodyReadings.read(client(to: server), name, size, chunked:),
                     "#{name} of #{size} bytes#{" in chunks" if chunked}"
      end
    end

    # @return [String] lines, empty ones among them, and bytes that are no text.
    def self.body(size) = ("line one\nline two\n\n\nthree \xfe\x00li\n".b * (size / 30 + 1))[0, size]

    # @return [String] the digest of what a file gives.
    def self.expected(name, body)
      Tempfile.create(binmode: true) do |file|
        file.write(body)
        file.rewind
        DIGEST.call(READINGS.merge(AGAIN).fetch(name).call(file))
      end
    end

    # @return [String] the digest of what the server's app got.
    def self.read(client, name, size, chunked:)
      return client.request("PUT", "/#{name}", body: body(size)).response.body unless chunked

      coded = body(size).bytes.each_slice(3000).map { |part| "#{part.size.to_s(16)}\r\n".b << part.pack("C*") << "\r\n" }
      client << "PUT /#{name} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
      client << "#{coded.join}0\r\n\r\n".b
      client.response.body
    end
  end
end
