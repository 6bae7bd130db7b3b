# frozen_string_literal: true

module Fairlead
  # The metrics at a path of the app's own addresses: a worker answers, before the app.
  class MetricsEndpoint
    # @return [#call] the app, within the endpoint if the option `metrics` is a path.
    def self.around(app, configuration, metrics)
      return app unless configuration.metrics&.start_with?("/")

      new(app, configuration.metrics, AccessToken.new(configuration.metrics_token), metrics)
    end

    # @param app [#call]
    # @param path [String]
    # @param token [AccessToken]
    # @param metrics [Metrics]
    def initialize(app, path, token, metrics)
      @app = app
      @path = path
      @token = token
      @metrics = metrics
    end

    # (see the Rack specification)
    def call(env)
      return @app.call(env) unless env["PATH_INFO"] == @path
      return refuse(401, "Unauthorized", "www-authenticate" => AccessToken::CHALLENGE) unless @token.allows?(env["HTTP_AUTHORIZATION"])
      return refuse(405, "Method Not Allowed", "allow" => "GET, HEAD") unless %w[GET HEAD].include?(env["REQUEST_METHOD"])

      status, headers, body = @metrics.answer(env["HTTP_ACCEPT"])
      [status, headers, [body]]
    end

    private

    def refuse(status, text, headers)
      [status, { "content-type" => "text/plain", "cache-control" => "no-store", **headers }, ["#{text}\n"]]
    end
  end
end
