# frozen_string_literal: true

require "zlib"

module Fairlead
  class Compression
    # One encoder for each content coding. All of them compress without Ruby's lock. An encoder serves one response:
    # `compress(slice, flush)` and `finish` return the bytes to send (they may be none), `close` frees its memory. After a flush, NOTHING
    # are bytes that a decoder takes and that say nothing, and `ending(text)` are those that add a short text and end the body: neither
    # changes the encoder, so that the core may send them while the app is silent.
    module Encoders
      # RFC 1952, over Zlib. About 256 KB, until it is closed.
      class Gzip
        # Random bytes in the header hide the exact length from those who compare guesses (BREACH); as many as Thruster takes.
        MOST_PADDING = 32
        LEVEL = 4
        NOTHING = "\0\0\0\xFF\xFF".b.freeze # a stored block of no bytes (RFC 1951, 3.2.4)
        private_constant :MOST_PADDING, :LEVEL

        # @return [String] all of a short response.
        def self.whole(text)
          encoder = new
          encoder.compress(text, false) + encoder.finish
        ensure
          encoder&.close
        end

        def initialize
          @deflate = Zlib::Deflate.new(LEVEL, -Zlib::MAX_WBITS)
          @crc = @size = 0
          @head = "\x1F\x8B\x08\x10\0\0\0\0\0\x03".b + ("x" * Random.rand(MOST_PADDING)) + "\0" # with a comment
        end

        def compress(slice, flush)
          @crc = Zlib.crc32(slice, @crc)
          @size += slice.bytesize
          take_head + @deflate.deflate(slice, flush ? Zlib::SYNC_FLUSH : Zlib::NO_FLUSH)
        end

        def finish = take_head + @deflate.finish + [@crc, @size & 0xffffffff].pack("VV")

        # The last block, stored.
        def ending(text)
          size = text.bytesize
          [1, size, ~size & 0xffff].pack("Cvv") + text.b + [Zlib.crc32(text, @crc), (@size + size) & 0xffffffff].pack("VV")
        end

        def close = @deflate.close

        private

        def take_head
          head = @head
          @head = ""
          head
        end
      end

      # RFC 7932, by the gem brotli. About 1 MB.
      class Brotli
        # The window is that of a page, 256 KB: the default of 4 MB costs each stream its memory.
        OPTIONS = { quality: 4, lgwin: 18 }.freeze
        NOTHING = "\x06".b.freeze # a block of metadata without any (RFC 7932, 9.2)
        private_constant :OPTIONS

        def self.whole(text) = ::Brotli.deflate(text, OPTIONS)

        def initialize
          @compressor = ::Brotli::Compressor.new(OPTIONS)
        end

        def compress(slice, flush) = flush ? @compressor.process(slice) + @compressor.flush : @compressor.process(slice)

        def finish = @compressor.finish

        # An uncompressed block, and an empty last one.
        def ending(text) = [((text.bytesize - 1) << 3) | (1 << 19)].pack("V").byteslice(0, 3) + text.b + "\x03".b

        def close = nil
      end

      # RFC 8878, by the gem zstd-ruby. About 1 MB, which the garbage collector does not count: so responses use a compressor one after
      # the other.
      class Zstd
        LEVEL = 1
        NOTHING = "\0\0\0".b.freeze # a raw block of no bytes (3.1.1.2)
        MOST_IDLE = 8
        private_constant :LEVEL, :MOST_IDLE
        @idle = []

        class << self
          def whole(text) = ::Zstd.compress(text, level: LEVEL)

          # @api private
          def take = @idle.pop || ::Zstd::StreamingCompress.new(level: LEVEL)

          # @api private
          # @param compressor [Zstd::StreamingCompress] that has finished, so that its next bytes begin a frame.
          def give_back(compressor)
            @idle << compressor if @idle.size < MOST_IDLE
          end
        end

        def initialize
          @compressor = Zstd.take
          @finished = false
        end

        def compress(slice, flush) = flush ? @compressor.compress(slice) + @compressor.flush : @compressor.compress(slice)

        def finish
          @compressor.finish.tap { @finished = true }
        end

        # Gives the compressor back once, however often it is called: two responses must not get the same one.
        def close
          compressor, @compressor = @compressor, nil
          return unless compressor

          compressor.finish unless @finished
          Zstd.give_back(compressor)
        end

        # The last block, raw.
        def ending(text) = [(text.bytesize << 3) | 1].pack("V").byteslice(0, 3) + text.b
      end

      # @return [Hash{String => Class}] by the names of their codings: gzip, and what the app has a gem for.
      def self.available
        encoders = { "gzip" => Gzip }
        encoders["br"] = Brotli if loads?("brotli") { ::Brotli::Compressor }
        encoders["zstd"] = Zstd if loads?("zstd-ruby") { ::Zstd::StreamingCompress }
        encoders
      end

      # A version of the gem without that class cannot stream.
      def self.loads?(gem)
        require gem
        yield
        true
      rescue LoadError, NameError
        false
      end
      private_class_method :loads?
    end
  end
end
