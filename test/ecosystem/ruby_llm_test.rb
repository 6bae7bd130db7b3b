# frozen_string_literal: true

require_relative "ecosystem"
require_relative "../http_client"

module Fairlead
  # ruby_llm: an action relays the tokens of a language model to its client while they come. The provider is a fake one, which
  # waits in the middle of each answer until the test lets it go on.
  class RubyLLMTest < EcosystemTest
    include SpeaksHTTP

    CHATS = 50

    # As OpenAI's chat completions: an event for each token.
    PROVIDER = <<~'RUBY'
      require "json"
      TOKEN = ->(content) { "data: #{JSON.generate(id: "1", model: "fake", choices: [{ index: 0, delta: { role: "assistant", content: } }])}\n\n" }
      $answering = 0

      run lambda { |env|
        next [200, {}, [$answering.to_s]] if env["PATH_INFO"] == "/answering"

        prompt = JSON.parse(env["rack.input"].read).dig("messages", -1, "content")
        answer = lambda do |stream|
          $answering += 1
          4.times do |n|
            sleep 0.01 until n < 2 || !prompt.start_with?("chat") || File.exist?("go-on")
            stream << TOKEN["#{prompt}-#{n} "]
          end
          (stream << TOKEN["more "]; sleep 0.01) while prompt.start_with?("endless")
          stream << "data: [DONE]\n\n"
        ensure
          $answering -= 1
          stream.close
        end
        [200, { "content-type" => "text/event-stream" }, answer]
      }
    RUBY

    APP = <<~'RUBY'
      require "ruby_llm"
      RubyLLM.configure do |config|
        config.openai_api_key = "none"
        config.openai_api_base = ENV.fetch("PROVIDER")
        config.logger = Logger.new(File::NULL)
      end

      def chat = RubyLLM.chat(model: "fake", provider: :openai, protocol: :chat_completions, assume_model_exists: true)

      run lambda { |env|
        prompt = env["QUERY_STRING"]
        case env["PATH_INFO"]
        when "/threads" then [200, {}, [Thread.list.size.to_s]]
        when "/whole" then [200, { "content-type" => "text/plain" }, [chat.ask(prompt) { nil }.content]]
        else
          answer = lambda do |stream|
            chat.ask(prompt) { |chunk| stream << chunk.content.to_s }
          ensure
            stream.close
          end
          [200, { "content-type" => "text/plain" }, answer]
        end
      }
    RUBY

    def test_an_answer_as_a_whole
      assert_equal "quick-0 quick-1 quick-2 quick-3 ", app.get("/whole?quick").body
    end

    # Each client has the beginning of its answer while the provider still makes all of them.
    def test_many_answers_are_streamed_at_once_by_one_worker
      threads = app.get("/threads").body.to_i
      chats = (1..CHATS).to_h { |n| ["chat#{n}", client(to: app).request("GET", "/?chat#{n}")] }
      chats.each { |prompt, client| nil until client.line.include?("#{prompt}-1 ") }

      assert_equal CHATS, provider.get("/answering").body.to_i
      assert_operator app.get("/threads").body.to_i - threads, :<, 10, "they take a thread each"

      provider.write("go-on", "")
      chats.each do |prompt, client|
        rest = client.rest_of_chunks

        assert_equal ["#{prompt}-2 ", "#{prompt}-3 "], rest.scan(/chat\d+-\d /)
      end
    end

    def test_a_client_that_leaves_ends_the_call_of_the_provider
      connection = client(to: app).request("GET", "/?endless")
      nil until connection.line.include?("more")
      connection.reset

      eventually("the provider is left, too") { provider.get("/answering").body == "0" }
    end

    private

    def provider = shared_server(PROVIDER, name: :provider, env: BUNDLE)

    def app = shared_server(APP, name: :app, env: BUNDLE.merge("PROVIDER" => "#{provider.address}/v1"))
  end
end
