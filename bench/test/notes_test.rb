# frozen_string_literal: true

require_relative "../../test/helper"
require_relative "../harness/cli"

module Bench
  # Where a peer is ahead of ours, or ours misses what it aims at, bench/NOTES.md says why.
  class NotesTest < Minitest::Test
    NOTES = File.join(Toolchain::ROOT, "bench/NOTES.md")

    def test_each_load_in_which_ours_is_not_ahead_is_told
      told = File.read(NOTES)[/^## Not ahead\n(.*?)^## /m, 1]
      behind = Report.new.overview.select { |row| row.times <= 0.98 || row.aims.any?(false) }
      places = behind.map { |row| "`#{row.workload}` #{row.load}" }

      assert_operator told.scan(/`[a-z0-9-]+` [a-z0-9-]+/).size, :>=, 10
      assert_empty places.reject { |place| told.match?(/#{Regexp.escape(place)}(?![a-z0-9-])/) }
    end
  end
end
