# frozen_string_literal: true

# Relays an answer of a language model, token by token, as server-sent events.
class AnswersController < ApplicationController
  def show
    stream("text/event-stream") do |events|
      LanguageModel.each_token { |text| events << "data: #{{ text: }.to_json}\n\n" }
    end
  end
end
