# frozen_string_literal: true

require "digest"
require "fileutils"
require_relative "toolchain"

module Bench
  # A copy of Fairlead, its extension compiled for the Ruby that is measured: the one in the work tree belongs
  # to whatever Ruby the tests use, and the tree may change while a comparison runs. With a git revision, the
  # copy is of that state: two states can be compared in one run.
  class FairleadBuild
    PARTS = %w[lib ext exe].freeze
    private_constant :PARTS

    # @return [String] the folder of the copy.
    attr_reader :folder

    # @param revision [String, nil] nil: the work tree as it is now.
    def initialize(toolchain, revision)
      @toolchain = toolchain
      @revision = revision
      # The last commit that touched what is measured: others change no figure.
      @commit = git("log", "-1", "--format=%h", "--abbrev=12", revision || "HEAD", "--", *PARTS)
      @folder = File.join(Toolchain::WORK, "fairlead", revision ? @commit : "work-tree")
    end

    # @return [String] what was built, for the results: the same for the same sources.
    def version
      changed = @revision.nil? && !git("status", "--porcelain", "--", *PARTS).empty?
      "#{@commit}#{" with changes (#{digest})" if changed}"
    end

    # Copies and compiles what has changed since the last time.
    def build
      source = @revision ? export : Toolchain::ROOT
      PARTS.each { |part| mirror(File.join(source, part), File.join(@folder, part)) }
      compile
      self
    end

    private

    def export
      target = "#{@folder}-source"
      FileUtils.rm_rf(target)
      FileUtils.mkdir_p(target)
      archive = IO.popen(["git", "-C", Toolchain::ROOT, "archive", @commit, "--", *PARTS], "rb", &:read)
      IO.popen(["tar", "-x", "-C", target], "wb") { |tar| tar.write(archive) }
      target
    end

    # Only Ruby's and C's sources: libraries and objects in the tree were made by another Ruby.
    def mirror(from, to)
      FileUtils.rm_rf(to)
      Dir.glob("**/*", base: from).each do |path|
        next if File.directory?(File.join(from, path)) || path.match?(/\.(so|o|bundle|log)\z|(\A|\/)Makefile\z/)

        target = File.join(to, path)
        FileUtils.mkdir_p(File.dirname(target))
        FileUtils.cp(File.join(from, path), target, preserve: true)
      end
    end

    def compile
      build = File.join(@folder, "build", digest("ext"))
      library = Dir[File.join(build, "fairlead.{so,bundle}")].first || make(build)
      FileUtils.cp(library, File.join(@folder, "lib/fairlead"))
    end

    def make(build)
      warn "Compiling Fairlead (#{version}) for #{@toolchain.description}"
      FileUtils.rm_rf(File.dirname(build))
      FileUtils.mkdir_p(build)
      @toolchain.capture(*@toolchain.ruby, File.join(@folder, "ext/fairlead/extconf.rb"), chdir: build)
      @toolchain.capture("make", "--quiet", "-j2", chdir: build)
      Dir[File.join(build, "fairlead.{so,bundle}")].first or
        raise UsageError, "make left no fairlead library in #{build}"
    end

    # Of the copy's sources.
    def digest(parts = "{#{PARTS.join(",")}}")
      digest = Digest::SHA256.new
      digest << @toolchain.description
      Dir.glob("#{parts}/**/*", base: @folder).sort.each do |path|
        full = File.join(@folder, path)
        digest << path << File.binread(full) if File.file?(full) && !path.end_with?(".so", ".bundle")
      end
      digest.hexdigest[0, 16]
    end

    def git(*arguments)
      output, status = Open3.capture2("git", "-C", Toolchain::ROOT, *arguments)
      return output.strip if status.success?

      raise UsageError, "git #{arguments.join(" ")} failed; is #{@revision || "HEAD"} a revision?"
    end
  end
end
