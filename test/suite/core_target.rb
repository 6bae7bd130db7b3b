# frozen_string_literal: true

module Fairlead
  class Suite
    # A target of test/core/Makefile.
    CoreTarget = Struct.new(:root, :target) do
      # @return [Array<CoreTarget>]
      def self.all(root) = ["test", "fallbacks", "kqueue", "tsan", "fuzz SECONDS=15", "costs"].map { |target| new(root, target) }

      def name = "make -C test/core #{target}"
      def guess = 60
      def limit = Suite.limit(self)

      # Whether a failure counts at once: what a fuzzer has found it need not find again.
      def final? = target.start_with?("fuzz")

      def run(_records, timing:, only: nil)
        exec("make", "--quiet", "--jobs=#{Etc.nprocessors}", "-C", "test/core", *target.split, chdir: root)
      end
    end
  end
end
