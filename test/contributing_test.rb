# frozen_string_literal: true

require "etc"
require "open3"
require_relative "helper"

# The changes that CONTRIBUTING.md shows can be made as written, and do what it says.
class ContributingTest < Fairlead::Test
  needs :minutes

  # What the changed library says: the option, the figure of a worker, and what the driver's file has changed.
  PROGRAM = <<~RUBY
    module DuckDB
      class Connection
        def query(sql) = sql
      end
    end
    require "fairlead/parts"
    page = Fairlead::SharedPage.new(1)
    { state: 2, hijacked: 3 }.each { |field, value| page.write(0, field, value) }
    Fairlead::Drivers.establish
    puts Fairlead::Configuration.load(false).greeting, Fairlead::WorkerStats.of(page)[:workers].first[:hijacked],
         DuckDB::Connection.new.method(:query).owner, DuckDB::Connection.new.query("SELECT 1")
  RUBY

  # Applies a change to a copy of the repository. Lines without a plus sign have to be there already, one after the other.
  class Change
    def initialize(folder) = @folder = folder

    def apply(diff)
      diff.split(/^--- /).drop(1).each do |part|
        path, *lines = part.lines(chomp: true)
        file = File.join(@folder, path)
        FileUtils.mkdir_p(File.dirname(file))
        old = File.exist?(file) ? File.readlines(file, chomp: true) : []
        File.write(file, [*changed(old, lines, path), ""].join("\n"))
      end
    end

    private

    def changed(old, lines, path)
      added, known = lines.partition { |line| line.start_with?("+") }
      at = known.empty? ? -1 : place(old, known) or raise "#{path} has no lines like\n#{known.join("\n")}"
      rest = old.dup
      rest.delete_at(at) if (removed = known.last&.start_with?("-"))
      rest.insert(removed ? at : at + 1, *added.map { |line| line.delete_prefix("+") })
    end

    # @return [Integer, nil] where the last of the known lines is.
    def place(old, known)
      wanted = known.map { |line| line[1..].split.join(" ") }
      old.each_cons(wanted.size).find_index { |some| some.map { |line| line.split.join(" ") } == wanted }&.+(wanted.size - 1)
    end
  end

  def test_an_option_a_figure_a_driver_and_a_protocol_can_be_added_as_shown
    Dir.mktmpdir do |folder|
      FileUtils.cp_r([File.join(ROOT, "lib"), File.join(ROOT, "ext"), File.join(ROOT, "exe")], folder)
      text = File.read(File.join(ROOT, "CONTRIBUTING.md"))
      changes = text.scan(/^```diff\n(.*?)^```/m).flatten

      assert_operator changes.size, :>=, 3
      changes.each { |diff| Change.new(folder).apply(diff) }
      compile(folder)
      assert_equal %w[hello 3 Fairlead::Drivers::DuckDB] << "SELECT 1", run_in(folder, "-e", PROGRAM).lines(chomp: true)
      assert_match(/^ +--greeting TEXT +What the server says first\./, run_in(folder, "exe/fairlead", "--help"))
    end
  end

  private

  def compile(folder)
    build = File.join(folder, "build")
    FileUtils.mkdir_p(build)
    said, status = Open3.capture2e("#{RbConfig.ruby} ../ext/fairlead/extconf.rb && make --silent --jobs=#{Etc.nprocessors}", chdir: build)

    assert_predicate status, :success?, said
    FileUtils.cp(File.join(build, "fairlead.so"), File.join(folder, "lib/fairlead/fairlead.so"))
  end

  def run_in(folder, *arguments)
    said, status = Open3.capture2(RbConfig.ruby, "-I", File.join(folder, "lib"), *arguments, chdir: folder)

    assert_predicate status, :success?
    said
  end
end
