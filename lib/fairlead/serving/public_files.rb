# frozen_string_literal: true

module Fairlead
  # The folder of files that the core serves before the app.
  class PublicFiles
    autoload :Rails, "fairlead/serving/public_files/rails"

    # Values that leave the files to the app.
    OFF = %w[off false no 0].freeze

    # @param app [#call]
    # @return [PublicFiles, nil] nil: the app serves its files itself.
    # @raise [ConfigurationError]
    def self.for(app, configuration)
      folder = configuration.public_files
      return Rails.files_of(app) if folder.nil?
      return if OFF.include?(folder)

      new(File.expand_path(folder), at: configuration.source(:public_files))
    end

    # @param known_types_only [Boolean] whether files whose type the core does not know are left to the app.
    # @param at [String, nil] the place of the option.
    def initialize(folder, headers: {}, known_types_only: false, at: nil)
      @folder = folder
      @headers = headers.to_h { |name, value| [name.to_s.downcase, value.to_s] }
      @known_types_only = known_types_only
      @at = at
    end

    attr_reader :folder, :headers

    # @param loop [Loop]
    def serve(loop)
      loop.serve_files(@folder, @headers, @known_types_only)
    rescue SystemCallError, ArgumentError => error # ArgumentError: more headers than the core keeps. The app serves them.
      raise ConfigurationError, "#{@at}: `public_files` names #{@folder}, which cannot be opened: #{error.message}." if @at
    end
  end
end
