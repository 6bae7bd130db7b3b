# frozen_string_literal: true

require "open3"
require_relative "rails_app"

module Fairlead
  # Files of public/ in a Rails app: whether the core serves them, or the app.
  # Covers serving/public_files/rails.rb
  class RailsPublicFilesTest < RailsTest
    FILES = {
      "config.ru" => "require_relative \"config/environment\"\nrun Rails.application\n",
      "public/robots.txt" => "nothing here\n", "public/assets/app-0123abcd.css" => "a{}", "public/page.strange" => "strange"
    }.freeze
    PRODUCTION = <<~RUBY
      Rails.application.configure do
        config.enable_reloading = false
        config.eager_load = true
        config.assume_ssl = true
        config.force_ssl = true
        config.public_file_server.headers = { "cache-control" => "public, max-age=31556952" }
      end
    RUBY

    def test_the_core_serves_them_as_rails_would
      files = FILES.merge("config/environments/production.rb" => PRODUCTION)
      answers = %w[on off].map do |state|
        flags = state == "off" ? ["--public-files", "off"] : []
        server = rails(:fairlead, "--workers", "1", *flags, files:)
        %w[/robots.txt /assets/app-0123abcd.css /page.strange /nothing.txt].map { |path| server.get(path) }
      end
      answers.first.zip(answers.last) do |ours, rails|
        seen = [ours, rails].map { |answer| [answer.code, answer.body[0, 30], answer["content-type"], answer["strict-transport-security"]] }

        assert_equal seen.last, seen.first
      end
      robots, asset, strange, = answers.first

      assert_match(/max-age=\d+/, robots["strict-transport-security"])
      assert_equal "public, max-age=31556952", robots["cache-control"]
      assert_equal "public, max-age=31536000, immutable", asset["cache-control"]
      assert_equal [true, true, false], [robots, asset, strange].map { |answer| !answer["etag"].nil? }
      assert_equal [false] * 4, answers.last.map { |answer| !answer["etag"].nil? && answer.code == "200" }
    end

    # Where Apache or Thruster did that.
    def test_the_core_sends_what_the_app_would_leave_to_x_sendfile
      { "X-Sendfile" => nil, "X-Lighttpd-Send-File" => "config.ru" }.each do |header, named|
        setting = "Rails.application.config.action_dispatch.x_sendfile_header = #{header.inspect}\n"
        server = rails(:fairlead, "--workers", "1", files: { "config/initializers/files.rb" => setting })
        answer = server.get("/file")

        assert_equal ["200", named && server.path(named)], [answer.code, answer[header]]
        assert_equal named ? "" : File.read(server.path("config.ru")), answer.body
      end
    end

    # The folder is that of the app, also where a metrics path is around it.
    def test_error_pages_come_from_the_folder_of_the_app
      server = rails(:fairlead, "--workers", "1", "--metrics", "/metrics", "--metrics-token", "none", "--request-timeout", "0.5",
                     files: FILES.merge("config/initializers/pages.rb" => "Rails.application.paths[\"public\"] = \"pages\"\n",
                                        "pages/504.html" => "<h1>late</h1>"))
      output, status = Open3.capture2("curl", "-sS", "-m", "60", "-H", "Accept: text/html", "http://127.0.0.1:#{server.port}/reload?wait=60")

      assert_equal ["<h1>late</h1>", true], [output, status.success?]
    end

    def test_the_app_serves_them_if_its_own_middleware_comes_first
      server = rails(:fairlead, "--workers", "1", files: FILES.merge("config/initializers/origin.rb" => <<~RUBY))
        class Origin
          def initialize(app) = @app = app

          def call(env)
            status, headers, body = @app.call(env)
            [status, headers.merge("access-control-allow-origin" => "*"), body]
          end
        end
        Rails.application.config.middleware.insert_before 0, Origin
      RUBY
      answer = server.get("/robots.txt")

      assert_equal ["nothing here\n", "*", nil], [answer.body, answer["access-control-allow-origin"], answer["etag"]]
    end
  end
end
