# frozen_string_literal: true

require "json"
require "open3"
require_relative "helper"

# What bin/test makes of the process that runs a file.
class SuiteTest < Fairlead::Test
  # In a process of its own, since tests run already in this one.
  RUN = <<~RUBY
    folder, limit = ARGV
    file = Fairlead::Suite::TestFile.new(folder, "some_test.rb", [], false)
    file.define_singleton_method(:limit) { limit.to_f }
    lane = Fairlead::Suite::Lane.new(0, folder, databases: false)
    lane.start(file, timing: ENV.key?("TIMING"))
    outcome = nil
    sleep(0.01) until (outcome = lane.outcome)
    print JSON.generate(outcome.then { |one| { runs: one.runs, failures: one.failures, errors: one.errors, skips: one.skips.size } })
  RUBY
  private_constant :RUN

  def test_a_file_that_passes
    assert_equal({ runs: 2, failures: [], errors: [], skips: 1 }, outcome("def test_a = assert(true)\ndef test_b = skip"))
  end

  def test_failures_and_errors_are_told
    seen = outcome("def test_a = assert_equal(1, 2)\ndef test_b = raise(\"broken\")\ndef test_c = nil")
    assert_equal [3, 1, 1], [seen[:runs], seen[:failures].size, seen[:errors].size]
    assert_match(/SomeTest#test_a.*Expected: 1/m, seen[:failures].first)
    assert_match(/SomeTest#test_b.*broken/m, seen[:errors].first)
  end

  def test_a_process_that_dies_is_an_error_and_the_test_is_named
    seen = outcome("def test_a = Process.kill(:KILL, Process.pid)")
    assert_match(/some_test\.rb ended with .*SIGKILL.* in SomeTest#test_a/, seen[:errors].first)
  end

  def test_so_is_one_that_hangs_and_one_that_exits_early
    assert_match(/some_test\.rb was killed after 2\.0 s in SomeTest#test_a/, outcome("def test_a = sleep", limit: 2)[:errors].first)
    assert_match(/some_test\.rb ended .* in SomeTest#test_a/, outcome("def test_a = exit!(0)")[:errors].first)
  end

  def test_so_is_a_file_that_cannot_be_loaded
    assert_match(/some_test\.rb ended with .*exit 1.*no_such_method/m, outcome("no_such_method")[:errors].first)
  end

  def test_promises_about_time_run_alone
    body = "timing def test_a = flunk(\"a\")\ndef test_b = flunk(\"b\")"
    assert_match(/#test_b/, outcome(body)[:failures].join)
    assert_match(/#test_a/, outcome(body, "TIMING" => "yes")[:failures].join)
  end

  # A renamed file would lose its place in the order, and a long one would come to be in the fast mode.
  def test_measured_files_are_there
    names = File.readlines(File.join(ROOT, "test/suite/seconds"), chomp: true).map { |line| line.split(" ", 2).last }
    assert_empty names.reject { |name| name.start_with?("make ") || File.exist?(File.join(ROOT, name)) }, "in test/suite/seconds"
  end

  private

  def outcome(body, limit: 60, **environment)
    Dir.mktmpdir do |folder|
      needs = File.join(ROOT, "test/needs").inspect
      File.write(File.join(folder, "some_test.rb"), "require #{needs}\nclass SomeTest < Minitest::Test\nextend Fairlead::Needs\n#{body}\nend\n")
      said, status = Open3.capture2e(environment.transform_keys(&:to_s), RbConfig.ruby, "-r", File.join(ROOT, "test/suite"), "-e", RUN, folder, limit.to_s)
      assert_predicate status, :success?, said
      JSON.parse(said, symbolize_names: true)
    end
  end
end
