# frozen_string_literal: true

require_relative "../helper"
require "active_record"

module Fairlead
  class ErrorReportTest < Test
    def test_the_place_is_the_users_own_file_also_if_a_library_raised
      text = diagnose("require \"json\"\n\nJSON.parse(\"{\")\n")

      assert_match(/\A#{Regexp.escape(@path)}:3: JSON::ParserError: /, text)
      assert_match(%r{^  raised in /}, text)
    end

    def test_of_what_is_missing_ruby_s_own_frames_are_not_shown
      refute_match(/raised in/, diagnose("require \"no/such/thing\""))
    end

    def test_a_gem_in_the_users_folder_is_not_the_users_file
      folder = Dir.mktmpdir
      FileUtils.mkdir_p("#{folder}/vendor/bundle")
      File.write("#{folder}/vendor/bundle/library.rb", "def self.broken = raise(\"broken\")\nbroken\n")
      text = diagnose("\nload \"#{folder}/vendor/bundle/library.rb\"", folder)

      assert_match(/\A#{Regexp.escape(@path)}:2: RuntimeError: broken$/, text)
    end

    def test_a_cause_is_named
      text = diagnose("begin\n  Integer(\"x\")\nrescue ArgumentError\n  raise \"no number\"\nend\n")

      assert_match(/:4: RuntimeError: no number\n  caused by ArgumentError: invalid value for Integer/, text)
    end

    def test_a_message_of_many_lines_is_cut
      text = diagnose("raise (1..100).map { |number| \"line \#{number}\" }.join(\"\\n\")")

      assert_match(/^line 12\n  …$/, text)
      refute_match(/line 13/, text)
    end

    def test_debug_adds_the_backtrace
      assert_match(/^    #{Regexp.escape(__FILE__)}:\d+:in /, diagnose("raise \"x\"", debug: true))
      refute_match(/^    /, diagnose("raise \"x\""))
    end

    def test_every_error_has_a_remedy
      assert_match(/bundle install/, remedy(error_of("require \"no/such/thing\"")))
      assert_match(/bundle exec/, remedy(Gem::LoadError.new("already activated")))
      assert_match(/database server runs.*DATABASE_URL/, remedy(::ActiveRecord::DatabaseConnectionError.new("x")))
      assert_match(/db:prepare/, remedy(::ActiveRecord::NoDatabaseError.new("x")))
      assert_equal "Fix it and start again; --debug shows the full backtrace.", remedy(RuntimeError.new("x"))
      assert_equal "Fix it and start again.", remedy(RuntimeError.new("x"), debug: true)
    end

    private

    def remedy(error, debug: false) = ErrorReport.new(error, file: "config.ru", debug:).remedy

    def diagnose(code, folder = Dir.mktmpdir, debug: false)
      ErrorReport.new(error_of(code, folder), file: @path, debug:).to_s
    end

    def error_of(code, folder = Dir.mktmpdir)
      @path = File.join(folder, "config.ru")
      File.write(@path, code)
      load(@path)
    rescue StandardError, LoadError => error
      error
    ensure
      FileUtils.rm_rf(folder)
    end
  end
end
