# frozen_string_literal: true

require_relative "helper"
require "open3"

# Covers api.rb, errors.rb, clock.rb, version.rb, parts.rb, supervision/autoload.rb, control/autoload.rb, fiber_safety/autoload.rb
# Covers hot_restart/autoload.rb, integrations/autoload.rb, ipc/autoload.rb, listening/autoload.rb, rackup/autoload.rb
# Covers acme/autoload.rb, serving/autoload.rb, stalls/autoload.rb, connection_budget/autoload.rb, observer/autoload.rb
class FairleadTest < Fairlead::Test
  # In a process of its own: in this one, other tests serve.
  def test_there_are_no_workers_when_nothing_is_served
    script = "require \"fairlead/parts\"; p Fairlead.stats, Fairlead.serving?"
    output, status = Open3.capture2e(RbConfig.ruby, "-I", File.join(ROOT, "lib"), "-e", script)
    assert_equal "#{{ workers: [], routes: [] }}\nfalse\n", output
    assert_predicate status, :success?
  end

  def test_the_figures_come_from_the_shared_page
    page = Fairlead::SharedPage.new(3)
    page.write(1, :index, 1)
    page.write(1, :pid, 42)
    page.write(1, :state, Fairlead::WorkerState::SERVING)
    page.write(1, :queued, 7)
    page.write(1, :heartbeat_ms, Process.clock_gettime(Process::CLOCK_MONOTONIC, :millisecond) - 1500)
    Fairlead.page = page
    worker, *others = Fairlead.stats.fetch(:workers)

    assert_empty others
    assert_equal [1, 42, :serving, 7, 0], worker.values_at(:index, :pid, :state, :queued, :in_flight)
    assert_includes 1.4..10, worker.fetch(:heartbeat_age)
    assert_equal [:regular, nil], worker.values_at(:kind, :stalled)
    assert_equal({ dedicated: false, waiting: 0, running: 0, most: 0, requests: 0, waited: 0.0 }, worker.fetch(:lane))
    assert_empty Fairlead.stats.fetch(:routes)
  ensure
    Fairlead.page = nil
  end

  def test_all_parts_load_without_a_warning
    script = "require \"fairlead/configuration\"\n" \
             "(Fairlead.constants - [:Live]).each { |name| Fairlead.const_get(name) }"
    _, errors, status = Open3.capture3(RbConfig.ruby, "-w", "-I", File.join(ROOT, "lib"), "-e", script)

    assert_predicate status, :success?, errors
    assert_empty errors.lines.select { |line| line.start_with?(File.join(ROOT, "lib")) }
    refute_match(/circular/, errors)
  end
end
