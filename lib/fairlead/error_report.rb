# frozen_string_literal: true

module Fairlead
  # Says of an exception in a user's file what it is and where, without a backtrace.
  class ErrorReport
    # How many lines of a message are worth showing.
    LINES = 12

    NO_SERVER = "Look whether the database server runs, or mend its address (config/database.yml, DATABASE_URL)."
    # What helps against errors that say too little themselves.
    REMEDIES = [
      ["Bundler::GemNotFound", "Run `bundle install`."],
      ["Bundler::GemfileNotFound", "Start it in the app's folder, or name a Gemfile with BUNDLE_GEMFILE."],
      ["Gem::LoadError", "Start it as `bundle exec fairlead`, so that the versions of the Gemfile are used."],
      ["LoadError", "Add the gem that holds it to the Gemfile and run `bundle install`, or mend the path."],
      ["ActiveRecord::NoDatabaseError", "Make the database (`bin/rails db:prepare`), or mend its name."],
      ["ActiveRecord::ConnectionNotEstablished", NO_SERVER],
      ["Sequel::DatabaseConnectionError", NO_SERVER]
    ].freeze
    # Frames of Ruby, and of gems that take its place: nothing is wrong there.
    REQUIRE = /require(?:_relative)?'\z/
    private_constant :REMEDIES, :NO_SERVER, :REQUIRE

    # @param error [Exception]
    # @param file [String] the file that was read: places in its folder are shown first.
    # @param debug [Boolean] whether to add the whole backtrace.
    def initialize(error, file:, debug: false)
      @error = error
      @file = ::File.expand_path(file)
      @debug = debug
    end

    # @return [String] "config.ru:3: NameError: undefined local variable or method `x'"
    def to_s
      [summary, *cause, *trace].join("\n")
    end

    # @return [String] what to do.
    def remedy
      names = @error.class.ancestors.map(&:name)
      known = REMEDIES.find { |name, _| names.include?(name) }
      known ? known.last : "Mend it and start again#{"; --debug shows the whole backtrace" unless @debug}."
    end

    # @return [String] where it happened, as far as the user's own files know: "config.ru:3".
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
      # An error raised in a gem: where, beside the line of the app that led there.
      raised = frames.find { |frame| !REQUIRE.match?(frame) }
      return if @error.is_a?(SyntaxError) || raised.nil? || own_frame == raised

      "  raised in #{raised}"
    end

    # Ruby adds source lines (error_highlight) and suggestions to the message: they help.
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

    # The first frame in the user's file or folder; gems that lie below it (vendor/bundle) are not the user's.
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
