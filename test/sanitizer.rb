# frozen_string_literal: true

require "open3"
require "rbconfig"

module Fairlead
  # The extension under AddressSanitizer (`rake compile:sanitized`), for servers under test.
  module Sanitizer
    ROOT = File.expand_path("..", __dir__)
    FLAGS = ["-I", File.join(ROOT, "tmp/sanitized")].freeze
    # Ruby has its own stacks for signals; it never frees some of what it allocates.
    OPTIONS = "detect_leaks=0:use_sigaltstack=0:halt_on_error=1:exitcode=99"

    class << self
      # @return [Hash{String => String}] of a Ruby that shall load it: the library comes before all others.
      # @raise [RuntimeError] where the compiler has none.
      def env = { "LD_PRELOAD" => library, "ASAN_OPTIONS" => OPTIONS }

      private

      def library
        names = %w[libasan.so libclang_rt.asan-x86_64.so libclang_rt.asan.so]
        paths = names.map { |name| Open3.capture2(*RbConfig::CONFIG["CC"].split, "-print-file-name=#{name}").first.chomp }
        path = paths.find { |one| File.absolute_path?(one) && File.exist?(one) }
        path ? File.realpath(path) : raise("The compiler (#{RbConfig::CONFIG["CC"]}) has no library of AddressSanitizer.")
      end
    end
  end
end
