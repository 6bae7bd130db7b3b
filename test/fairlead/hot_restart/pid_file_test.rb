# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  class PidFileTest < Test
    def setup
      super
      @folder = Dir.mktmpdir
      @path = "#{@folder}/server.pid"
    end

    def teardown
      FileUtils.remove_entry(@folder)
      super
    end

    def test_it_is_there_until_it_is_removed
      file = PidFile.new(@path)
      file.write

      assert_equal "#{Process.pid}\n", File.read(@path)
      file.remove
      refute_path_exists @path
    end

    def test_that_of_a_server_that_has_gone_is_replaced
      Process.wait(child = fork { exit!(0) })
      File.write(@path, child.to_s)
      PidFile.new(@path).write

      assert_equal "#{Process.pid}\n", File.read(@path)
    end

    def test_that_of_a_running_process_is_kept
      File.write(@path, Process.ppid.to_s)
      error = assert_raises(ConfigurationError) { PidFile.new(@path, at: "--pidfile").write }

      assert_match(/\A--pidfile: #{@path} says that the server runs already, as process #{Process.ppid}\./,
                   error.message)
      PidFile.new(@path).remove
      assert_equal Process.ppid.to_s, File.read(@path)
    end

    def test_nonsense_in_it_is_replaced
      File.write(@path, "nonsense")
      PidFile.new(@path).write

      assert_equal "#{Process.pid}\n", File.read(@path)
    end

    def test_a_folder_that_is_not_there_is_named
      error = assert_raises(ConfigurationError) { PidFile.new("#{@folder}/no/server.pid").write }

      assert_match(/cannot be written: No such file or directory\. Create its folder/, error.message)
    end

    def test_none_is_nothing
      file = PidFile.new(nil)

      assert_nil file.write
      assert_nil file.remove
    end
  end
end
