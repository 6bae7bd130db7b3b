# frozen_string_literal: true

require "brotli"
require "zlib"
require "zstd-ruby"

module Fairlead
  # For tests of compressed responses: decoders by content coding. Their `call` returns what can be decoded so far.
  module Decoders
    class Gunzip < Zlib::Inflate
      def initialize = super(Zlib::MAX_WBITS + 16)
      alias call inflate
    end

    class Unbrotli < Brotli::Decompressor
      alias call process
    end

    class Unzstd < Zstd::StreamingDecompress
      alias call decompress
    end

    DECODERS = { "gzip" => Gunzip, "br" => Unbrotli, "zstd" => Unzstd }.freeze
    # What keeps an encoded event stream alive, and says nothing.
    NOTHING = { "gzip" => "\0\0\0\xFF\xFF".b, "br" => "\x06".b, "zstd" => "\0\0\0".b }.freeze
  end
end
