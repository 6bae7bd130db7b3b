# frozen_string_literal: true

module Fairlead
  # Describes an exception in a user's file: what and where, without a backtrace.
  class ErrorReport
    # Lines shown of a message.
    LINES = 12

    NO_SERVER = "Check that the database server runs, and its address (config/database.yml, DATABASE_URL)."
    # Remedies for errors whose message names none.
    REMEDIES = [
      ["Bundler::GemNotFound", "Run `bundle install`."],
      ["Bundler::GemfileNotFound", "Start it in the app's folder, or name a Gemfile with BUNDLE_GEMFILE."],
      ["Gem::LoadError", "Start it as `bundle exec fairlead`, so that the versions of the Gemfile are used."],
      ["LoadError", "Add its gem to the Gemfile and run `bundle install`, or fix the path."],
      ["ActiveRecord::NoDatabaseError", "Create the database (`bin/rails db:prepare`), or fix its name."],
      ["ActiveRecord::ConnectionNotEstablished", NO_SERVER],
      ["Sequel::DatabaseConnectionError", NO_SERVER]
    ].freeze
    # Frames of require, and of gems that replace it.
    REQUIRE = /require(?:_relative)?'\z/
    private_constant :REMEDIES, :NO_SERVER, :REQUIRE

    # @param file [String] the file that was read; frames in its folder count as the user's
    # @param debug [Boolean] whether to add the full backtrace
    def initialize(error, file:, debug: false)
      @error = error
      @file = ::File.expand_path(file)
      @debug = debug
    end

    # @return [String] "config.ru:3: NameError: undefined local variable or method `x'"
    def to_s
      [summary, *cause, *trace].join("\n")
    end

    def remedy
      names = @error.class.ancestors.map(&:name)
      known = REMEDIES.find { |name, _| names.include?(name) }
      known ? known.last : "Fix it and start again#{"; --debug shows the full backtrace" unless @debug}."
    end

    # @return [String] the place in the user's files: "config.ru:3"
    def place
      return syntax_place if @error.is_a?(SyntaxError) && syntax_place

      own_frame ? "#{shorten(own_frame[/\A(.+?):\d+/, 1])}:#{own_frame[/:(\d+)/, 1]}" : shorten(@file)
    end

    private

    def summary
      return "#{place}: #{syntax_message}" if @error.is_a?(SyntaxError)

      "#{place}: #{@error.class}: #{clip(message(@error))}"
    end

    def cause
      cause = @error.cause or return
      "  caused by #{cause.class}: #{clip(message(cause))}"
    end

    def trace
      return frames.map { |frame| "    #{frame}" } if @debug

      # An error raised in a gem also has a line in the app that led there.
      raised = frames.find { |frame| !REQUIRE.match?(frame) }
      return if @error.is_a?(SyntaxError) || raised.nil? || own_frame == raised

      "  raised in #{raised}"
    end

    # Ruby adds source lines (error_highlight) and suggestions to the message.
    def message(error)
      text = error.respond_to?(:detailed_message) ? error.detailed_message(highlight: false) : error.message
      text.sub(/ \(#{Regexp.escape(error.class.to_s)}\)/, "").strip
    end

    def syntax_place
      path, line = @error.message.match(/\A(.+?):(\d+): /)&.captures
      "#{shorten(path)}:#{line}" if path
    end

    def syntax_message = clip(@error.message.sub(/\A.+?:\d+: /, ""))

    def clip(text)
      lines = text.lines(chomp: true)
      lines.size > LINES ? [*lines.first(LINES), "  …"].join("\n") : lines.join("\n")
    end

    def frames = @error.backtrace || []

    # The first frame in the user's folder, except gems below it (vendor/bundle).
    def own_frame
      @own_frame ||= frames.find { |frame| own?(frame) }
    end

    def own?(frame)
      frame.start_with?("#{::File.dirname(@file)}/", "#{Dir.pwd}/") && !frame.include?("/vendor/bundle/") &&
        Gem.path.none? { |path| frame.start_with?("#{path}/") }
    end

    def shorten(path)
      path.delete_prefix("#{Dir.pwd}/")
    end
  end
end
