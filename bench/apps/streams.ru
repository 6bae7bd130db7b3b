# frozen_string_literal: true

# Pages that read a row (/), beside streams that relay a language model (/stream). The query names the port of the model, which
# belongs to the load generator (harness/streams.c).

require "active_record/railtie"
require "json"
require "net/http"
require_relative "rails_application"

# As many connections as pages at once, so that none waits for one.
ENV["DATABASE_URL"] = "#{ENV.fetch("DATABASE_URL")}?max_connections=40"

# Itsi has no railtie that does it for its fibers.
BenchApplication.config.active_support.isolation_level = :fiber if defined?(Itsi)
BenchApplication.initialize!

class BenchItem < ActiveRecord::Base
end

class ItemsController < ActionController::Base
  def show = render(json: BenchItem.find(rand(1..1000)))
end

# A client of a language model's API.
class Model
  QUESTION = JSON.generate(model: "fake", stream: true, messages: [{ role: "user", content: "Tell me more." }])
  # Tokens may come seconds apart.
  PATIENCE = 600
  private_constant :QUESTION, :PATIENCE

  def initialize(port)
    @port = port
  end

  def each_token(&block)
    Net::HTTP.start("127.0.0.1", @port, read_timeout: PATIENCE) do |http|
      request = Net::HTTP::Post.new("/v1/chat/completions", "content-type" => "application/json")
      request.body = QUESTION
      http.request(request) { |response| each_event(response) { |event| block.call(token(event)) } }
    end
  end

  private

  def each_event(response)
    rest = +""
    response.read_body do |piece|
      rest << piece
      while (event = rest.slice!(/\A.*?\n\n/m))
        yield event
      end
    end
  end

  def token(event) = JSON.parse(event.delete_prefix("data: ")).dig("choices", 0, "delta", "content")
end

class AnswersController < ActionController::Base
  prepend_view_path File.join(__dir__, "views")

  def show
    mark
    response.headers["content-type"] = "text/event-stream"
    response.headers["cache-control"] = "no-cache"
    model = Model.new(Integer(request.query_string, 10))
    view = view_context
    self.response_body = lambda do |stream|
      model.each_token { |text| stream.write("data: #{view.render("answers/token", text:)}\n") }
    rescue SystemCallError, IOError
      nil # the client or the model has closed
    ensure
      stream.close
    end
  end

  private

  # For servers that need the app's word to tell a stream from a page.
  def mark
    request.env["puma.mark_as_io_bound"]&.call
    Falcon::Limiter::LongTask.current&.start(delay: false) if defined?(Falcon::Limiter::LongTask)
  end
end

BenchApplication.routes.draw do
  root to: "items#show"
  get "stream", to: "answers#show"
end

run BenchApplication
