# frozen_string_literal: true

require "etc"
require "open3"
require_relative "helper"

# The changes that CONTRIBUTING.md shows can be made as written, and do what it says.
class ContributingTest < Fairlead::Test
  needs :minutes

  # What the changed library says: the option, the metric of a worker, and what the driver's file has changed.
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
    metrics = Fairlead::Metrics.new(page, Struct.new(:latest).new({})).answer(nil).last
    puts Fairlead::Configuration.load(false).greeting, Fairlead::WorkerStats.of(page)[:workers].first[:hijacked],
         metrics[/^fairlead_hijacked_connections_total .*/],
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

  def test_an_option_a_metric_a_driver_and_a_protocol_can_be_added_as_shown
    in_copy do |folder|
      text = File.read(File.join(ROOT, "CONTRIBUTING.md"))
      changes = text.scan(/^```diff\n(.*?)^```/m).flatten

      assert_operator changes.size, :>=, 3
      changes.each { |diff| Change.new(folder).apply(diff) }
      compile(folder)
      assert_equal ["hello", "3", "fairlead_hijacked_connections_total 3", "Fairlead::Drivers::DuckDB", "SELECT 1"],
                   run_in(folder, "-e", PROGRAM).lines(chomp: true)
      assert_match(/^ +--greeting TEXT +What the server says first\./, run_in(folder, "exe/fairlead", "--help"))
    end
  end

  # It serves without TLS and HTTP/2, and says what https takes.
  def test_a_core_without_openssl_and_libnghttp2_can_be_built_as_shown
    flags = File.read(File.join(ROOT, "CONTRIBUTING.md"))[/`gem install fairlead -- (.*?)`/, 1]
    in_copy do |folder|
      compile(folder, flags)
      library = ["-I", File.join(folder, "lib")]
      assert_equal "[false, false]\n", run_in(folder, "-r", "fairlead/parts", "-e", "p [Fairlead::TLS::AVAILABLE, Fairlead::TLS::HTTP2]")
      with_server("run ->(env) { [200, {}, [env[\"SERVER_PROTOCOL\"]]] }", ruby_flags: library) do |server|
        assert_equal "HTTP/1.1", server.get.body
        answer = server.exchange("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert_match(%r{\AHTTP/1.1 505 }, answer)
      end
      refused = with_server("", "--bind", "https://127.0.0.1:0", ruby_flags: library, ready: false)
      assert_equal 1, refused.wait_for_end.exitstatus
      assert_match(/`bind` wants https:\/\/, but Fairlead was built without OpenSSL\. Install OpenSSL 3/, refused.log)
    end
  end

  private

  def in_copy
    Dir.mktmpdir do |folder|
      FileUtils.cp_r([File.join(ROOT, "lib"), File.join(ROOT, "ext"), File.join(ROOT, "exe")], folder)
      yield folder
    end
  end

  def compile(folder, flags = "")
    build = File.join(folder, "build")
    FileUtils.mkdir_p(build)
    command = "#{RbConfig.ruby} ../ext/fairlead/extconf.rb #{flags} && make --silent --jobs=#{Etc.nprocessors}"
    said, status = Open3.capture2e(command, chdir: build)

    assert_predicate status, :success?, said
    FileUtils.cp(File.join(build, "fairlead.so"), File.join(folder, "lib/fairlead/fairlead.so"))
  end

  def run_in(folder, *arguments)
    said, status = Open3.capture2(RbConfig.ruby, "-I", File.join(folder, "lib"), *arguments, chdir: folder)

    assert_predicate status, :success?
    said
  end
end
