# frozen_string_literal: true

require "open3"
require "stringio"
require "yaml"
require_relative "helper"
require_relative "rooms"

# What the guides say is true of the code, the commands and the files.
class GuidesTest < Fairlead::Test
  GUIDES = Dir[File.join(ROOT, "{,guides/,guides/reference/,bench/}*.md")].freeze
  MOST_LINES = { "README.md" => 120, "bench/NOTES.md" => 150, "guides/*.md" => 200 }.freeze
  # What continues a line, and what a command begins with.
  FAIRLEAD = /^(?:[A-Z_]+=\S+ )*(?:bundle exec )?fairlead(?= |$)(.*)/
  SUBCOMMANDS = %w[restart status slow stalls doctor report].freeze

  def test_every_link_leads_somewhere
    GUIDES.each do |guide|
      text(guide).gsub(/^```.*?^```/m, "").scan(/\]\(([^)\s]+)\)/).flatten.grep_v(/\A[a-z]+:/).each do |link|
        target, anchor = link.split("#", 2)
        path = target.empty? ? guide : File.expand_path(target, File.dirname(guide))
        assert_path_exists path, "#{File.basename(guide)} links to #{link}"
        assert_includes anchors(path), anchor, "#{File.basename(guide)} links to #{link}" if anchor
      end
    end
  end

  def test_no_page_is_long
    MOST_LINES.each do |pattern, most|
      Dir[File.join(ROOT, pattern)].each { |page| assert_operator text(page).lines.size, :<=, most, page }
    end
  end

  def test_the_architecture_names_only_files_that_exist
    names = text("guides/architecture.md").scan(/`([\w\/.]+\.(?:rb|c|h))`/).flatten
    refute_empty names
    names.each do |name|
      refute_empty Dir[File.join(ROOT, "{lib,ext,test}/**/#{name}")], "no file is called #{name}"
    end
  end

  def test_the_architecture_names_every_room_and_no_other
    guide = text("guides/architecture.md")
    rooms = Dir[File.join(ROOT, "lib/fairlead/*/")].map { |folder| File.basename(folder) }
    drawn = guide[/```mermaid\n(.*?)```/m, 1].scan(/\b[a-z_]+\b(?= *(?:&|-->|$))/).uniq

    assert_empty rooms.reject { |room| guide.include?("`#{room}`") }
    assert_empty drawn - rooms
  end

  def test_the_arrows_of_the_architecture_are_those_of_the_code
    drawn = text("guides/architecture.md").scan(/^  ([a-z_]+) --> ([a-z_& ]+)$/).flat_map { |from, to| [from].product(to.split(" & ")) }
    refute_empty drawn
    assert_empty drawn - Rooms.new.arrows.map { |arrow| [arrow.from, arrow.to] }
  end

  def test_every_page_that_the_code_names_exists
    code = Dir[File.join(ROOT, "{lib,exe,bench/harness}/**/*.{rb,tt}")]
    named = code.flat_map { |file| text(file).scan(/\bguides\/[\w\/-]+\.md/) }.uniq
    refute_empty named
    named.each { |page| assert_path_exists File.join(ROOT, page) }
  end

  def test_every_file_of_a_command_exists
    named = GUIDES.flat_map { |guide| text(guide).scan(%r{(?<![\w./-])((?:test|bench)/[\w/-]+_test\.rb)}) }.flatten.uniq
    assert_operator named.size, :>=, 2
    named.each { |path| assert_path_exists File.join(ROOT, path) }
  end

  def test_configuration_examples_can_be_read
    examples = GUIDES.flat_map { |guide| text(guide).scan(/^```(?:ruby-configuration\n|ruby\n(?=# config\/fairlead\.rb))(.*?)^```/m) }
    assert_operator examples.size, :>=, 6
    examples.flatten.each do |example|
      Dir.mktmpdir do |folder|
        file = File.join(folder, "fairlead.rb")
        File.write(file, example)
        Fairlead::Configuration.new.read_file(file)
      end
    end
  end

  def test_every_flag_of_a_command_is_known
    commands = GUIDES.flat_map { |guide| text(guide).scan(/^```sh\n(.*?)^```/m) }.join.scan(FAIRLEAD).flatten
    assert_operator commands.size, :>=, 10
    helps = Hash.new { |known, words| known[words] = help(*words) }
    commands.each do |command|
      words = command[/\A[^#]*/].split
      subcommand = words & SUBCOMMANDS
      words.grep(/\A--?[a-z]/).each { |flag| assert_match(/(?<![\w-])#{flag}(?![\w-])/, helps[subcommand - %w[doctor]], command) }
    end
  end

  def test_issue_templates_ask_for_the_report
    templates = Dir[File.join(ROOT, ".github/ISSUE_TEMPLATE/*.yml")].reject { |path| path.end_with?("config.yml") }
    refute_empty templates
    templates.each { |path| assert_includes YAML.load_file(path).to_s, "fairlead report", path }
  end

  def test_every_rake_task_exists
    named = GUIDES.flat_map { |guide| text(guide).scan(/`(?:bundle exec )?rake\s+([\w:]+)/) }.flatten.uniq
    known, = Open3.capture2("bundle", "exec", "rake", "--all", "--tasks", chdir: ROOT)
    assert_empty named - known.scan(/^rake ([\w:]+)/).flatten
  end

  def test_the_rack_apps_of_getting_started_run_as_written
    blocks = text("guides/getting-started.md").scan(/```ruby\n(run .*?)```/m).flatten
    assert_equal 1, blocks.size
    with_server(blocks.first) { |server| assert_equal "hello\n", server.get("/").body }
  end

  def test_the_example_with_a_barrier_asks_three_times_at_once
    app = text("guides/getting-started.md")[/```ruby\n(require "async\/barrier".*?)```/m, 1]
    slow = 'run ->(env) { sleep 6; [200, {}, [env["PATH_INFO"]]] }'
    with_server(slow) do |backend|
      with_server(app.sub("9000", backend.port.to_s)) do |server|
        assert_operator duration { assert_equal "/a/b/c", server.get("/").body }, :<, 16
      end
    end
  end

  def test_the_metrics_of_the_guide_answer
    configuration = text("guides/observability.md")[/```ruby\n(# config\/fairlead.rb\nmetrics .*?)```/m, 1].sub("9394", "0")
    with_server("run ->(_) { [200, {}, []] }", "--bind", "http://127.0.0.1:0", files: { "config/fairlead.rb" => configuration }) do |server|
      metrics = Net::HTTP.get(URI(server.log[/^  metrics +(\S+)/, 1])).scan(/^# TYPE (\w+)/).flatten
      named = text("guides/observability.md").scan(/`(fairlead_\w+)(…)?`/)

      assert_operator named.size, :>=, 15
      assert_empty named.reject { |name, prefix| metrics.any? { |metric| prefix ? metric.start_with?(name) : metric == name } }
    end
  end

  private

  def text(path) = File.read(File.expand_path(path, ROOT))

  # As GitHub makes them of headings.
  def anchors(page)
    text(page).gsub(/^```.*?^```/m, "").scan(/^#+ (.*)/).flatten.map { |title| title.downcase.gsub(/[^\w\- ]/, "").tr(" ", "-") }
  end

  def help(*words)
    output = StringIO.new
    Fairlead::CLI.new([*words, "--help"], output:).run
    output.string
  end
end
