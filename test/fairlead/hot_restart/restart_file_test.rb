# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  class RestartFileTest < Test
    def setup
      super
      @folder = Dir.mktmpdir
      FileUtils.mkdir(File.join(@folder, "tmp"))
      @path = File.join(@folder, RestartFile::PATH)
    end

    def teardown
      FileUtils.remove_entry(@folder)
      super
    end

    def test_each_touch_is_reported_once
      file = RestartFile.new(@folder)
      refute_predicate file, :touched?
      [1, 2].each do |time|
        touch(time)

        assert_predicate file, :touched?
        refute_predicate file, :touched?
      end
    end

    def test_a_file_from_before_is_no_touch_nor_is_its_removal
      touch(1)
      file = RestartFile.new(@folder)
      refute_predicate file, :touched?
      File.unlink(@path)

      refute_predicate file, :touched?
      touch(2)

      assert_predicate file, :touched?
    end

    # Without `tmp` there is none: `bin/rails restart` makes both.
    def test_it_is_made_at_the_start_and_its_first_touch_counts
      FileUtils.rmdir(File.dirname(@path))
      without = RestartFile.new(@folder)
      refute_path_exists @path
      FileUtils.mkdir(File.dirname(@path))
      file = RestartFile.new(@folder)
      assert_path_exists @path
      refute_predicate file, :touched?
      touch(1)

      assert_predicate file, :touched?
      assert_predicate without, :touched?
    end

    private

    def touch(time) = FileUtils.touch(@path, mtime: Time.at(time))
  end
end
