# frozen_string_literal: true

require_relative "../../bundle"
require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # Apps that have stayed with Rack 2: a bundle of their own, in test/rack2, and Rack 2's own Rack::Lint.
  class Rack2Test < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      require "rack"
      text = { "Content-Type" => "text/plain" }.freeze
      APPS = {
        "/release" => ->(_) { [200, text.dup, [Rack.release]] },
        "/version" => ->(env) { [200, text.dup, [env["HTTP_VERSION"]]] },
        "/post" => ->(env) { [200, text.dup, [Rack::Request.new(env).POST.inspect]] },
        "/again" => ->(env) {
          input = env["rack.input"]
          first = input.read
          input.rewind
          [200, text.dup, ["#{first.bytesize} #{input.read == first}"]]
        },
        "/each" => ->(_) { [200, text.dup, Enumerator.new { |out| out << "a"; sleep 0.01; out << "b" }] },
        "/cookies" => ->(_) { [200, text.merge("Set-Cookie" => "a=1\nb=2"), ["ok"]] },
        "/no-content" => ->(_) { [204, {}, []] },
        "/hijack" => ->(env) {
          env["rack.hijack"].call
          io = env["rack.hijack_io"]
          io.write("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhijacked")
          io.close
          [200, text.dup, []]
        },
        "/partial" => ->(_) { [200, text.merge("rack.hijack" => ->(io) { io.write("partial"); io.close }), []] },
        "/raise" => ->(_) { raise "on purpose" }
      }.freeze
      run ->(env) { APPS.fetch(env["PATH_INFO"]).call(env) }
    RUBY

    BUNDLE = Bundle.new("test/rack2/Gemfile", path: "tmp/rack2")

    def setup
      skip BUNDLE.missing if BUNDLE.missing
    end

    def server = shared_server(APP, "--body-buffer", "1000", env: BUNDLE.environment)

    def test_it_is_rack_2
      assert_match(/\A2\.2/, client.get("/release").body)
    end

    # Its own `rackup`, which later became a gem.
    class RackupProcess < ServerProcess
      private

      def command
        [RbConfig.ruby, *LIBRARY.flat_map { |folder| ["-I", folder] }, Dir["#{ROOT}/tmp/rack2/ruby/*/gems/rack-2.2.*/bin/rackup"].first,
         "-o", "127.0.0.1", "-p", "0"]
      end

      def flags = @flags
    end

    def test_its_rackup_serves_with_it_if_asked_to_or_if_the_app_loads_it
      app = <<~'RUBY'
        told = Fairlead.respond_to?(:serving?) && Fairlead.serving?
        run ->(_) { [200, { "Content-Type" => "text/plain" }, ["#{Rack.release} #{told.inspect} #{Fairlead.serving?}"]] }
      RUBY
      { %w[-s fairlead] => ["", "false"], [] => ["require \"fairlead\"\n", "true"] }.each do |flags, (beginning, told)|
        server = of_this_test(RackupProcess.new(beginning + app, *flags, env: BUNDLE.environment, lint: false)).start.wait_until_ready

        assert_match(/\A2\.2\.\d+ #{told} true\z/, server.get.body)
        assert_match(/^Fairlead #{VERSION} on /, server.log)
        assert_predicate server.stop, :success?
      end
    end

    def test_forms_are_read
      ["a=b", "a=#{"b" * 5000}"].each do |form|
        answer = client.request("POST", "/post", "Content-Type: application/x-www-form-urlencoded", body: form).response
        assert_equal({ "a" => form[2..] }.inspect, answer.body)
      end
    end

    def test_a_body_of_any_size_can_be_read_again
      [1, 1000, 300_000].each do |size|
        client = client()
        assert_equal "#{size} true", client.request("PUT", "/again", body: "x" * size).response.body
        assert_equal "0 true", client.request("GET", "/again").response.body
      end
    end

    def test_an_app_may_hijack_its_connection
      assert_equal "hijacked", client.get("/hijack").body
      assert_equal "partial", client.get("/partial").body
    end

    def test_responses_of_all_kinds
      client = client()
      assert_equal "ab", client.get("/each").body
      assert_equal %w[a=1 b=2], client.get("/cookies")["set-cookie"]
      assert_equal [204, 500, 200], %w[/no-content /raise /release].map { |path| client.get(path).status }
      assert_equal 200, client.request("GET", "/release", host: nil, version: "1.0").response.status
    end

    # Sinatra 2 answers POST with 303 or 302 by it.
    def test_the_version_has_its_older_name_too
      assert_equal "HTTP/1.1", client.get("/version", "Version: HTTP/1.0").body
      assert_equal "HTTP/1.0", client.request("GET", "/version", version: "1.0").response.body
    end
  end
end
