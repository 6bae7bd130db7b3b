# frozen_string_literal: true

require_relative "helper"
require "open3"

# What YARD makes of the comments, as .yardopts says.
class DocumentationTest < Fairlead::Test
  # Its reader does not run the code, and knows none of what exists only then.
  UNKNOWABLE = /Undocumentable (superclass|mixin|private constant)/

  def test_yard_has_nothing_to_warn_of
    Dir.mktmpdir do |folder|
      said, status = Open3.capture2e(RbConfig.ruby, Gem.bin_path("yard", "yard"), "doc", "--no-save", "--no-cache",
                                     "--no-progress", "--output-dir", folder, chdir: ROOT)

      assert_predicate status, :success?, said
      assert_path_exists File.join(folder, "Fairlead/Supervisor.html")
      # One warning each, with the lines that belong to it.
      assert_empty said.scan(/^\[(?:warn|error)\].*?(?=^\[|^Files:|\z)/m).grep_v(UNKNOWABLE)
    end
  end
end
