# frozen_string_literal: true

require "open3"
require_relative "../../rails/rails_app"

module Fairlead
  # `fairlead report` beside servers that run, with a secret wherever one could be.
  # Covers cli/redaction.rb
  class ReportTest < Test
    SECRET = "s3cr3t-0123456789-abcdefghij"
    SECTIONS = ["Versions", "Configuration", "Status", "Stalls", "Slow requests", "Last crash", "Doctor"].freeze

    def test_it_prints_versions_configuration_status_stalls_and_doctor
      app = 'run ->(env) { env["PATH_INFO"].start_with?("/slow") and 20_000.times { env.inspect }; [200, {}, ["hello"]] }'
      with_server(app, "-w", "2", "-b", "http://127.0.0.1:0", files: { "config/fairlead.rb" => "drain_timeout 7\nstall_report 0.01\n" }) do |server|
        server.get("/slow/#{SECRET}?token=#{SECRET}")
        text = report(server, env: { "WEB_CONCURRENCY" => "3" })

        assert_equal SECTIONS, text.scan(/^## (.+)$/).flatten
        assert_match(/^fairlead #{VERSION} \(#{Platform::POLLER}\)\n#{Regexp.escape(RUBY_DESCRIPTION)}\n/, text)
        assert_match(/\basync \d+\.\d+\.\d+, .*rack \d/, text)
        assert_includes text, "drain_timeout 7.0 (config/fairlead.rb:1)\n"
        assert_includes text, "workers 3 (the environment variable WEB_CONCURRENCY)\n"
        assert_match(/^Fairlead #{VERSION} in #{Regexp.escape(server.directory)}, process #{server.pid}/, text)
        assert_match(/ computing +GET \/slow\/:\w+$/, text)
        refute_includes text, SECRET
        assert_includes text, "Nothing would hurt in the environment development."
      end
    end

    def test_no_secret_is_in_it
      files = {
        "config/fairlead.rb" => "metrics_token \"#{SECRET}\"\ntag \"password=#{SECRET}\"\nlog \"https://user:#{SECRET}@example.com/log\"\n",
        "config/initializers/noise.rb" => "puts \"token #{SECRET}\"\nwarn \"token #{SECRET}\"\n",
        "config/initializers/state.rb" => "Thread.current[:key] = \"#{SECRET}\"\n",
        "app/models/client.rb" => "class Client\n  def key = (Thread.current[:key] = \"#{SECRET}\")\nend\n"
      }
      app = of_this_test(RailsServer.new(:fairlead, files:))
      text = report(app, env: {
        "DATABASE_URL" => "sqlite3:#{SECRET}.sqlite3", "SECRET_KEY_BASE" => "#{SECRET}base", "RAILS_ENV" => "production",
        "FAIRLEAD_PIDFILE" => "tmp/#{SECRET}.pid", "BUNDLE_GEMFILE" => RailsServer::GEMFILE
      })

      refute_includes text, SECRET
      assert_equal SECTIONS, text.scan(/^## (.+)$/).flatten
      assert_includes text, "environment \"production\""
      assert_includes text, "metrics_token set (config/fairlead.rb:1)\n"
      assert_includes text, "pidfile set (the environment variable FAIRLEAD_PIDFILE)\n"
      assert_includes text, "tag \"password=[redacted]"
      assert_match(/app\/models\/client\.rb:2$/, text)
    end

    def test_an_app_that_cannot_be_loaded_is_part_of_it_without_what_its_error_quotes
      message = "postgresql://me:#{SECRET}@db/shop, api_key: '#{SECRET}', Authorization: Bearer #{SECRET}"
      app = of_this_test(ServerProcess.new("raise ArgumentError, #{message.dump}"))
      text = report(app)

      refute_includes text, SECRET
      assert_match(/config\.ru:3: ArgumentError: postgresql:\/\/\[redacted\]@db\/shop, api_key: \[redacted\], /, text)
    end

    def test_the_app_can_be_left_out
      app = of_this_test(ServerProcess.new("exit!"))

      assert_includes report(app), "## Doctor\n\nThe app ended while it was loaded.\n"
      assert_includes report(app, flags: ["--no-app"]), "## Doctor\n\nLeft out (--no-app).\n"
    end

    def test_a_wrong_flag_is_told
      assert_raises(ConfigurationError) { CLI::Report.new(%w[--wrong]).run }
      assert_raises(ConfigurationError) { CLI::Report.new(%w[somewhere]).run }
    end

    private

    # In the folder of a server.
    def report(server, env: {}, flags: [])
      output, errors, status = Open3.capture3(ServerProcess::CLEAN.merge(env), RbConfig.ruby, "-I", File.join(ROOT, "lib"),
                                              File.join(ROOT, "exe/fairlead"), "report", *flags, chdir: server.directory)

      assert_predicate status, :success?, errors
      output
    end
  end
end
