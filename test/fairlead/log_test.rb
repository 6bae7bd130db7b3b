# frozen_string_literal: true

require_relative "../helper"
require "logger"

module Fairlead
  class LogTest < Test
    def setup
      super
      @folder = Dir.mktmpdir
    end

    def teardown
      Log.io = $stderr
      FileUtils.remove_entry(@folder)
      super
    end

    def test_it_says_who_speaks
      Log.io = File.open("#{@folder}/a.log", "a")
      Log.say "Something."
      Log.io.close

      assert_equal "[#{Process.pid}] fairlead: Something.\n", File.read("#{@folder}/a.log")
      assert_nil Log.say("Something else."), "a closed log ends nothing"
    end

    def test_logs_that_were_moved_are_reopened_and_others_are_not
      logger = Logger.new("#{@folder}/app.log")
      stays = File.open("#{@folder}/stays.log", "a")
      data = File.open("#{@folder}/data", "w+")
      logger.info("before")
      File.rename("#{@folder}/app.log", "#{@folder}/app.log.1")
      File.rename("#{@folder}/data", "#{@folder}/data.1")
      number = stays.fileno

      assert_equal 1, Log.reopen
      logger.info("after")
      assert_match(/after/, File.read("#{@folder}/app.log"))
      refute_match(/after/, File.read("#{@folder}/app.log.1"))
      refute_path_exists "#{@folder}/data"
      assert_equal number, stays.fileno
      assert_equal 0, Log.reopen
    ensure
      [stays, data].each(&:close)
      logger.close
    end

    def test_a_log_whose_folder_has_gone_stays_open
      FileUtils.mkdir("#{@folder}/logs")
      file = File.open("#{@folder}/logs/a.log", "a")
      FileUtils.rm_r("#{@folder}/logs")
      Log.io = nil

      assert_equal 0, Log.reopen
      file.write("still")
    ensure
      file.close
    end
  end
end
