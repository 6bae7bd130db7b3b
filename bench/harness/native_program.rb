# frozen_string_literal: true

require "fileutils"
require "open3"

module Bench
  # The load generators written in C, one file each in this folder.
  module NativeProgram
    module_function

    # Compiles the program after a change of its source, or of a header.
    #
    # @param libraries [Array<String>] linker flags.
    # @return [String] its path.
    # @raise [UsageError] when the compiler fails.
    def path(name, *libraries)
      source = File.join(__dir__, "#{name}.c")
      program = File.join(Toolchain::WORK, name)
      return program if File.exist?(program) && File.mtime(program) > newest(source)

      FileUtils.mkdir_p(Toolchain::WORK)
      output, status = Open3.capture2e("cc", "-O2", "-o", program, source, "-lm", *libraries)
      raise UsageError, "cc could not compile #{source}:\n#{output}" unless status.success?

      program
    end

    def newest(source) = [source, *Dir[File.join(__dir__, "*.h")]].map { |path| File.mtime(path) }.max
    private_class_method :newest
  end
end
