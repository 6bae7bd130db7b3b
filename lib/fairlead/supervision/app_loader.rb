# frozen_string_literal: true

require "rack"
require "rack/builder"

module Fairlead
  # Builds the Rack app from config.ru. A mistake there becomes one message: file, line and remedy.
  module AppLoader
    # Of `fairlead`: a mistyped command is taken for a file.
    COMMANDS = %w[doctor restart stalls status].freeze
    private_constant :COMMANDS

    # @raise [BootError, ConfigurationError]
    def self.load(configuration)
      path = configuration.rackup
      raise BootError, missing(path) unless File.file?(path)

      # Rack 2 returns the app and options.
      app, = Rack::Builder.parse_file(File.expand_path(path))
      Isolation.establish
      app
    rescue StandardError, ScriptError, SystemStackError => error
      raise if error.is_a?(Error)

      raise BootError, failure(path, error, configuration.debug)
    end

    # Enables Ruby's compiler for apps that do not do so themselves, as Rails does. To be called once the app is loaded: code that
    # runs only once is not worth compiling.
    def self.enable_yjit(configuration)
      return unless configuration.yjit && defined?(RubyVM::YJIT) && !RubyVM::YJIT.enabled? && !defined?(::Rails::Application)

      RubyVM::YJIT.enable
    end

    def self.missing(path)
      command = DidYouMean::SpellChecker.new(dictionary: COMMANDS).correct(path).first
      "There is no #{path} in #{Dir.pwd}.#{" Did you mean `fairlead #{command}`?" if command}\n" \
        "Start fairlead in the folder of your app, or name the file: fairlead path/to/config.ru. " \
        "The smallest one is:\n  run ->(env) { [200, { \"content-type\" => \"text/plain\" }, [\"Hello\"]] }"
    end

    def self.failure(path, error, debug)
      diagnosis = ErrorReport.new(error, file: path, debug:)
      ["The app could not be loaded from #{path}.", diagnosis, diagnosis.remedy].join("\n")
    end
    private_class_method :missing
  end
end
