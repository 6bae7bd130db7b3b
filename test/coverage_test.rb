# frozen_string_literal: true

require_relative "helper"

# Each file of lib/fairlead has the test of its name at the same place in test/fairlead, or a test whose comment says
# `# Covers serving/reactor.rb, serving/reactor_group.rb`: where to look when that file changes.
class CoverageTest < Fairlead::Test
  FILES = Dir["**/*.rb", base: File.join(ROOT, "lib/fairlead")].freeze
  COVERED = Dir[File.join(ROOT, "{test,bench/test}/**/*_test.rb")].to_h { |path|
    [path.delete_prefix("#{ROOT}/"), path == __FILE__ ? [] : File.read(path).scan(/^ *# Covers (.+)$/).flat_map { |(names)| names.split(", ") }]
  }.freeze
  private_constant :FILES, :COVERED

  def test_each_file_of_the_library_has_a_test
    named = COVERED.values.flatten
    mirrored = FILES.select { |file| COVERED.key?("test/fairlead/#{file.delete_suffix(".rb")}_test.rb") }

    assert_empty FILES - mirrored - named, "files without a test of their name, and without a test that says it covers them"
  end

  def test_what_tests_say_they_cover_is_there
    assert_empty COVERED.transform_values { |names| names - FILES }.reject { |_, names| names.empty? }
  end
end
