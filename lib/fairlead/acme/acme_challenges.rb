# frozen_string_literal: true

module Fairlead
  # Answers the authority's requests, which prove that this server has the hosts (HTTP-01), before the app. Other paths, and tokens that
  # are not known here, go to the app.
  class ACMEChallenges
    PREFIX = "/.well-known/acme-challenge/"

    # @return [#call] the app, with the answers if the option `certificates` is set.
    def self.around(app, configuration)
      folder = ACMEFolder.for(configuration)
      folder ? new(app, folder) : app
    end

    # @param app [#call]
    # @param folder [ACMEFolder]
    def initialize(app, folder)
      @app = app
      @folder = folder
    end

    # (see the Rack specification)
    def call(env)
      path = env["PATH_INFO"]
      answer = path.start_with?(PREFIX) && %w[GET HEAD].include?(env["REQUEST_METHOD"]) && @folder.answer(path.delete_prefix(PREFIX))
      return @app.call(env) unless answer

      [200, { "content-type" => "application/octet-stream", "cache-control" => "no-store" }, [answer]]
    end
  end
end
