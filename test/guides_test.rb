# frozen_string_literal: true

require_relative "helper"

# The guides speak of what is there.
class GuidesTest < Fairlead::Test
  GUIDES = Dir[File.join(ROOT, "guides/*.md"), File.join(ROOT, "*.md")].freeze

  def test_every_link_to_a_file_leads_somewhere
    GUIDES.each do |guide|
      File.read(guide).scan(/\]\(([^)#\s]+)/).flatten.grep_v(/\A[a-z]+:/).each do |target|
        assert_path_exists File.expand_path(target, File.dirname(guide)), "#{File.basename(guide)} names #{target}"
      end
    end
  end

  def test_the_architecture_names_only_files_that_exist
    text = File.read(File.join(ROOT, "guides/architecture.md"))
    names = text.scan(/`([\w\/.]+\.(?:rb|c|h))`/).flatten
    refute_empty names
    names.each do |name|
      refute_empty Dir[File.join(ROOT, "{lib,ext}/**/#{name}")], "no file is called #{name}"
    end
  end

  def test_the_rack_apps_of_getting_started_run_as_written
    blocks = File.read(File.join(ROOT, "guides/getting-started.md")).scan(/```ruby\n(run .*?)```/m).flatten
    assert_equal 1, blocks.size
    with_server(blocks.first) { |server| assert_equal "hello\n", server.get("/").body }
  end

  def test_the_example_with_a_barrier_asks_three_times_at_once
    guide = File.read(File.join(ROOT, "guides/getting-started.md"))
    app = guide[/```ruby\n(require "async\/barrier".*?)```/m, 1]
    slow = 'run ->(env) { sleep 0.3; [200, {}, [env["PATH_INFO"]]] }'
    with_server(slow) do |backend|
      with_server(app.sub("9000", backend.port.to_s)) do |server|
        assert_one_below(0.7) { duration { assert_equal "/a/b/c", server.get("/").body } }
      end
    end
  end

  def test_the_export_to_prometheus_has_a_line_for_each_figure_of_each_worker
    guide = File.read(File.join(ROOT, "guides/deployment.md"))
    app = guide[/```ruby\n(map "\/metrics".*?)```/m, 1]
    with_server(app, "-w", "2") do |server|
      lines = server.get("/metrics").body.lines

      assert_equal 14, lines.size
      server.worker_pids.each_with_index do |pid, index|
        assert_equal 7, lines.grep(/\Afairlead_[a-z_]+\{kind="regular",worker="#{index}",process="#{pid}"\} [\d.]+\n\z/).size
      end
    end
  end
end
