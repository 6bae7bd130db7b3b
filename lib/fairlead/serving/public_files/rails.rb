# frozen_string_literal: true

module Fairlead
  class PublicFiles
    # The public folder of a Rails app. The core serves it only where its responses are those of ActionDispatch::Static: if the app's own
    # middleware comes before that, it might refuse a request or add a header.
    module Rails
      # What may come before: it changes nothing about files, or what it adds is known.
      HARMLESS = %w[ActionDispatch::AssumeSSL Rack::Sendfile].freeze
      SSL = "ActionDispatch::SSL"
      private_constant :HARMLESS, :SSL

      # @return [PublicFiles, nil]
      def self.files_of(app)
        return unless defined?(::Rails::Application) && app.is_a?(::Rails::Application)

        server = app.config.public_file_server
        before = before_static(app)
        return if before.nil? || !server.enabled || server.index_name != "index"

        headers = (server.headers || {}).merge(transport_headers(app, before) || (return nil))
        folder = app.paths["public"].first
        PublicFiles.new(folder, headers:, known_types_only: true) if folder && File.directory?(folder)
      end

      # @return [Array<String>, nil] the names of the middleware before ActionDispatch::Static.
      def self.before_static(app)
        names = app.middleware.map(&:name)
        at = names.index("ActionDispatch::Static")
        names.first(at) if at
      end

      # @return [Hash, nil] what ActionDispatch::SSL adds; nil: something else comes before the files.
      def self.transport_headers(app, before)
        return unless (before - HARMLESS - [SSL]).empty?
        return {} unless before.include?(SSL)
        return unless before.include?("ActionDispatch::AssumeSSL") # else it redirects requests that came without TLS

        env = { "REQUEST_METHOD" => "GET", "PATH_INFO" => "/", "HTTP_HOST" => "localhost", "HTTPS" => "on" }
        _, headers = ::ActionDispatch::SSL.new(->(_) { [200, {}, []] }, **app.config.ssl_options).call(env)
        headers.to_h
      end
      private_class_method :before_static, :transport_headers
    end
  end
end
