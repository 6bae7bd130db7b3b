# frozen_string_literal: true

module Fairlead
  # The app's pages for errors that Fairlead reports itself: 502.html, 503.html and 504.html in the public folder. Read once, when a
  # worker starts. The core sends them to clients that accept text/html.
  module ErrorPages
    CODES = [502, 503, 504].freeze
    private_constant :CODES

    class << self
      # @param folder [String]
      # @param loop [Loop]
      def load(folder, loop)
        CODES.each do |code|
          path = File.join(folder, "#{code}.html")
          next unless File.file?(path)

          page = File.binread(path, Loop::MAX_ERROR_PAGE + 1)
          next if loop.error_page(code, page)

          warn "fairlead: #{path} is larger than #{Loop::MAX_ERROR_PAGE} bytes: clients get plain text for #{code}."
        rescue SystemCallError => error
          warn "fairlead: #{path} cannot be read: #{error.message}. Clients get plain text for #{code}."
        end
      end

      # @param app [#call] the app itself: what is wrapped around it hides Rails' folder.
      # @return [String] the public folder, whoever serves it.
      def folder(app, configuration)
        named = configuration.public_files
        return File.expand_path(named) unless named.nil? || PublicFiles::OFF.include?(named)

        of_rails = app.paths["public"].first if defined?(::Rails::Application) && app.is_a?(::Rails::Application)
        of_rails || File.expand_path("public")
      end
    end
  end
end
