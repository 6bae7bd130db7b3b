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
    failures, errors = outcome.faults.partition(&:failure?).map { |faults| faults.map(&:text) }
    print JSON.generate({ runs: outcome.runs, failures:, errors:, skips: outcome.skips.size })
  RUBY
  # A whole run, of a folder of its own.
  WHOLE = <<~RUBY
    exit Fairlead::Suite.new("all", root: ARGV.first, databases: false).run
  RUBY
  # A test that fails so many times.
  FAILS = <<~'RUBY'
    def fail_first(times)
      File.write("tries", "x", mode: "a")
      flunk "try #{File.size("tries")}" if File.size("tries") <= times
    end
  RUBY
  # Runs a test that does not end.
  HANGS = <<~RUBY
    folder = ARGV.first
    file = Fairlead::Suite::TestFile.new(folder, "some_test.rb", [], false)
    lane = Fairlead::Suite::Lane.new(0, folder, databases: false)
    lane.open
    lane.start(file, timing: false)
    sleep
  RUBY
  private_constant :RUN, :WHOLE, :FAILS, :HANGS

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

  def test_what_two_of_three_runs_say_of_a_promise_about_time_counts
    tries = lambda do |times|
      said, status, = whole("timing def test_a = fail_first(#{times})") { |folder| @tries = File.size(File.join(folder, "tries")) }
      assert_predicate status, :success?, said
      refute_match(/again, alone/, said)
      @tries
    end

    assert_equal [2, 3], [tries.call(0), tries.call(1)]
  end

  def test_what_needs_the_machine_runs_beside_no_other_file
    note = ->(what) { "File.write(\"runs\", \"#{what} \", mode: \"a\")" }
    body = "needs :machine\ndef test_a = (#{note.call("begins")}; sleep(0.2); #{note.call("ends")})"
    said, status, = whole(body, more: { "test/another_test.rb" => body, "test/third_test.rb" => "def test_c = #{note.call("beside")}" }) do |folder|
      assert_match(/\Abeside (begins ends ){2}\z/, File.read(File.join(folder, "runs")))
    end

    assert_predicate status, :success?, said
  end

  # What such a run has begun goes on, and holds nothing.
  def test_what_a_killed_run_has_left_is_cleared_away_by_the_next_and_what_others_use_is_not
    Dir.mktmpdir do |temporary|
      in_a_lane(temporary) do |_, other|
        in_a_lane(temporary) do |runner, left|
          Process.kill(:KILL, runner)
          eventually("it has ended") { File.read("/proc/#{runner}/stat").match?(/\) Z/) }
          assert_path_exists left
          said, status, = whole("def test_a = assert_path_exists(ENV.fetch(\"TMPDIR\"))", environment: { "TMPDIR" => temporary })

          assert_predicate status, :success?, said
          assert_equal [other, "#{other}.lock"], Dir.glob(File.join(temporary, "fairlead-*")).sort
        end
      end
    end
  end

  def test_a_second_run_in_the_same_checkout_is_refused
    second = "Open3.capture2e({ \"SECOND\" => \"yes\" }, RbConfig.ruby, \"-r\", #{File.join(ROOT, "test/suite").inspect}, \"-e\", #{WHOLE.inspect}, Dir.pwd)"
    said, status, = whole("def test_a = ENV.key?(\"SECOND\") || File.write(\"second\", #{second}.join)") do |folder|
      assert_match(/\Abin\/test runs already in #{Regexp.escape(folder)}: .*exit 1\b/m, File.read(File.join(folder, "second")))
    end

    assert_predicate status, :success?, said
  end

  def test_what_fails_beside_others_and_passes_alone_three_times_is_unstable
    said, status, unstable = whole("def test_a = fail_first(1)\ndef test_b = File.write(\"b\", \"x\", mode: \"a\")") do |folder|
      assert_equal "x" * 4, File.read(File.join(folder, "tries"))
      assert_equal "x", File.read(File.join(folder, "b")), "only what failed runs again"
    end

    assert_predicate status, :success?, said
    assert_match(/^Unstable: these passed alone.*== test\/some_test\.rb -n SomeTest#test_a --seed \d+$.*try 1/m, said)
    assert_match(/^Unstable: 1\n\d+ runs, \d+ assertions, 0 failures, 0 errors, 0 skips\n\z/, said)
    assert_match(/SomeTest#test_a.*try 1/m, unstable)
  end

  def test_what_fails_alone_again_is_a_failure
    2.upto(4) do |times|
      said, status, unstable = whole("def test_a = fail_first(#{times})")

      refute_predicate status, :success?, said
      assert_match(/^Failed:\n\n== .*test_a.*try 1.*^Unstable: 0\n\d+ runs, \d+ assertions, 1 failures/m, said)
      assert_empty unstable
    end
  end

  def test_promises_about_time_and_files_that_end_early_are_tried_again_too
    said, status, = whole("timing def test_a = fail_first(2)\n")
    assert_predicate status, :success?, said
    assert_match(/^== .*\(timing\) -n SomeTest#test_a/, said)

    said, status, = whole("def test_a = File.exist?(\"once\") || (File.write(\"once\", \"\"); exit!(0))")
    assert_predicate status, :success?, said
  end

  def test_more_than_five_are_no_accident
    said, status, = whole((1..6).map { |n| "def test_#{n} = File.exist?(\"#{n}\") || (File.write(\"#{n}\", \"\"); flunk)" }.join("\n"))

    refute_predicate status, :success?, said
    assert_match(/ 6 failures, /, said)
  end

  def test_a_crash_is_not_tried_again
    ["Process.kill(:SEGV, Process.pid)", "flunk(\"ERROR: AddressSanitizer: heap-use-after-free\")",
     "flunk(\"a process of the server crashed.\")"].product(["", "timing "]).each do |crash, timing|
      said, status, = whole("#{timing}def test_a = File.exist?(\"once\") || (File.write(\"once\", \"\"); #{crash})")

      refute_predicate status, :success?, said
      refute_includes said, "again, alone"
    end
  end

  # `make` runs each target, which fails for the first time.
  def test_so_it_is_with_targets_of_the_core
    once = ->(says) { "@test -e once || { touch once; echo '#{says}'; exit 1; }" }
    said, status, = whole("def test_a = nil", make: { "test" => once.call("expected 1, got 0") })
    assert_predicate status, :success?, said
    assert_match(%r{^== make -C test/core test$}, said)

    { "test" => "died with exit status 139", "tsan" => "WARNING: ThreadSanitizer: data race", "fuzz" => "found something" }.each do |target, says|
      said, status, = whole("def test_a = nil", make: { target => once.call(says) })
      refute_predicate status, :success?, said
      refute_includes said, "again, alone"
    end
  end

  # A renamed file would lose its place in the order, and a long one would come to be in the fast mode.
  def test_measured_files_are_there
    names = File.readlines(File.join(ROOT, "test/suite/seconds"), chomp: true).map { |line| line.split(" ", 2).last }
    assert_empty names.reject { |name| name.start_with?("make ") || File.exist?(File.join(ROOT, name)) }, "in test/suite/seconds"
  end

  private

  def outcome(body, limit: 60, **environment)
    Dir.mktmpdir do |folder|
      File.write(File.join(folder, "some_test.rb"), text_of(body))
      said, status = ruby(RUN, folder, limit.to_s, environment:)
      assert_predicate status, :success?, said
      JSON.parse(said, symbolize_names: true)
    end
  end

  # @yieldparam runner [Integer] a process that runs a test in a lane.
  # @yieldparam place [String] the lane's folder of temporary files.
  def in_a_lane(temporary)
    Dir.mktmpdir do |folder|
      File.write(File.join(folder, "some_test.rb"), text_of("def test_a = File.write(\"begun\", \"\#{Process.pid} \#{ENV.fetch(\"TMPDIR\")}\") && sleep"))
      runner = spawn({ "TMPDIR" => temporary }, RbConfig.ruby, "-r", File.join(ROOT, "test/suite"), "-e", HANGS, folder, chdir: folder)
      test, place = eventually("the test has begun") { File.exist?(begun = File.join(folder, "begun")) && File.read(begun)[/.+/] }.split
      yield runner, place
    ensure
      [runner, test&.to_i].compact.each { |pid| Process.kill(:KILL, pid) }
      Process.wait(runner)
    end
  end

  # @param make [Hash{String => String}] commands of targets of the core.
  # @param more [Hash{String => String}] further test files.
  # @return [Array(String, Process::Status, String)] what was said, how it ended, and the file of unstable tests.
  def whole(body, make: {}, more: {}, environment: {})
    Dir.mktmpdir do |folder|
      FileUtils.mkdir_p(File.join(folder, "test/core"))
      { "test/some_test.rb" => "#{FAILS}\n#{body}", **more }.each { |name, text| File.write(File.join(folder, name), text_of(text)) }
      targets = %w[test fallbacks kqueue tsan fuzz costs].map { |target| "#{target}:\n\t#{make.fetch(target, "@true")}\n" }
      File.write(File.join(folder, "test/core/Makefile"), ".PHONY: test fallbacks kqueue tsan fuzz costs\n#{targets.join}")
      said, status = ruby(WHOLE, folder, chdir: folder, environment:)
      yield folder if block_given?
      [said, status, File.read(File.join(folder, "tmp/suite/unstable"))]
    end
  end

  def text_of(body)
    "require #{File.join(ROOT, "test/needs").inspect}\nclass SomeTest < Minitest::Test\nextend Fairlead::Needs\n#{body}\nend\n"
  end

  def ruby(program, *arguments, environment: {}, **)
    Open3.capture2e(environment.transform_keys(&:to_s), RbConfig.ruby, "-r", File.join(ROOT, "test/suite"), "-e", program, *arguments, **)
  end
end
