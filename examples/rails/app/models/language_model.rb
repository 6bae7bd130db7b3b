# frozen_string_literal: true

require "net/http"

# A client of the fake language model in lib/remote_server.rb.
module LanguageModel
  # @yieldparam text [String]
  def self.each_token
    uri = RemoteServer.uri("/tokens")
    Net::HTTP.start(uri.host, uri.port) do |http|
      http.request_get(uri.request_uri) do |response|
        rest = +""
        response.read_body do |piece|
          rest << piece
          while (event = rest.slice!(/\A.*?\n\n/m))
            yield JSON.parse(event.delete_prefix("data: ")).dig("choices", 0, "delta", "content")
          end
        end
      end
    end
  end
end
