# frozen_string_literal: true

require "etc"
require "open3"
require_relative "helper"

# The changes that CONTRIBUTING.md shows can be made as written, and do what it says.
class ContributingTest < Fairlead::Test
  needs :minutes

  DUCKDB = <<~RUBY
    module DuckDB
      class Connection
        def query(sql) = [sql, Thread.current.name]
      end
    end
  RUBY
  APP = <<~RUBY
    run lambda { |env|
      worker = Fairlead.stats[:workers].first
      text = [Fairlead.configuration.greeting, worker[:hijacked], *DuckDB::Connection.new.query("SELECT 1")].join(" ")
      [200, {}, [text]]
    }
  RUBY

  # Applies a change to a copy of the repository. Lines without a sign have to be there already, one after the other.
  class Change
    def initialize(folder) = @folder = folder

    def apply(diff)
      diff.split(/^--- /).drop(1).each do |part|
        path, *lines = part.lines(chomp: true)
        file = File.join(@folder, path)
        old = File.exist?(file) ? File.readlines(file, chomp: true) : []
        File.write(file, [*changed(old, lines, path), ""].join("\n"))
      end
    end

    private

    def changed(old, lines, path)
      known, added = lines.partition { |line| line.start_with?(" ") }
      at = known.empty? ? -1 : place(old, known) or raise "#{path} has no lines like\n#{known.join("\n")}"
      old.dup.insert(at + 1, *added.map { |line| line.delete_prefix("+") })
    end

    # @return [Integer, nil] where the last of the known lines is.
    def place(old, known)
      wanted = known.map { |line| line.split.join(" ") }
      old.each_cons(wanted.size).find_index { |some| some.map { |line| line.split.join(" ") } == wanted }&.+(wanted.size - 1)
    end
  end

  def test_an_option_a_figure_and_a_driver_can_be_added_as_shown
    Dir.mktmpdir do |folder|
      FileUtils.cp_r([File.join(ROOT, "lib"), File.join(ROOT, "ext"), File.join(ROOT, "exe")], folder)
      text = File.read(File.join(ROOT, "CONTRIBUTING.md"))
      changes = text.scan(/^```diff\n(.*?)^```/m).flatten

      assert_operator changes.size, :>=, 3
      changes.each { |diff| Change.new(folder).apply(diff) }
      compile(folder)
      assert_equal "hello 0 SELECT 1 fairlead offload", answer(folder)
    end
  end

  private

  def compile(folder)
    build = File.join(folder, "build")
    Dir.mkdir(build)
    said, status = Open3.capture2e("#{RbConfig.ruby} ../ext/fairlead/extconf.rb && make --silent --jobs=#{Etc.nprocessors}", chdir: build)

    assert_predicate status, :success?, said
    FileUtils.cp(File.join(build, "fairlead.so"), File.join(folder, "lib/fairlead/fairlead.so"))
  end

  # What an app gets from the changed server.
  def answer(folder)
    File.write(File.join(folder, "duckdb.rb"), DUCKDB)
    File.write(File.join(folder, "config.ru"), "require \"./duckdb\"\n#{APP}")
    reader, writer = IO.pipe
    pid = Process.spawn(RbConfig.ruby, "-I", "lib", "exe/fairlead", "--workers", "0", "--greeting", "hello", "--bind", "unix:s",
                        chdir: folder, %i[out err] => writer)
    writer.close
    said = +""
    said << reader.readpartial(4096) until said.include?("process  ")
    UNIXSocket.open(File.join(folder, "s")) do |socket|
      socket.write("GET / HTTP/1.0\r\n\r\n")
      socket.read[/\r\n\r\n(.*)/m, 1]
    end
  ensure
    Process.kill(:TERM, pid) && Process.wait(pid) if pid
    reader&.close
  end
end
