# frozen_string_literal: true

require_relative "../helper"
require "open3"

module Fairlead
  # Ruby has nothing to warn of, with all its warnings on.
  class WarningsTest < Test
    # Everything that an app may bring along.
    EVERYTHING = <<~RUBY
      require "rails"
      require "active_record/railtie"
      require "action_controller/railtie"
      require "rails/generators"
      %w[pg trilogy mysql2 rackup fairlead fairlead-pool].each { |name| require name }
      require "fairlead/fairlead"
      Fairlead::ActiveRecord.name # what its parts open
      # Each by its own name, as it happens where one of them is needed first.
      (Dir[File.join(ARGV.first, "**/*.rb")] - Dir[File.join(ARGV.first, "rack/**/*.rb")]).sort.each { |file| require file } # that is for Rack 2
      puts "loaded"
    RUBY

    def test_all_files_load_without_a_warning
      loaded, text, = Open3.capture3(RbConfig.ruby, "-w", "-I", "#{ROOT}/lib", "-e", EVERYTHING, "#{ROOT}/lib")

      assert_equal "loaded\n", loaded, text
      assert_empty ours(text)
    end

    def test_serving_makes_none
      app = <<~'RUBY'
        run lambda { |env|
          case env["PATH_INFO"]
          when "/wait" then sleep 0.01
          when "/raise" then raise "wrong"
          when "/read" then env["rack.input"].read
          when "/offload" then Fairlead.offload { 1 + 1 }
          end
          body = env["PATH_INFO"] == "/stream" ? ->(stream) { stream.write("x"); stream.close } : [Fairlead.stats.inspect]
          [200, { "content-type" => "text/plain" }, body]
        }
      RUBY
      with_server(app, "-w", "2", "--access-log", "json", "--recycle-requests", "1000000", ruby_flags: ["-w", "--enable=frozen-string-literal"]) do |server|
        %w[/ /wait /raise /offload /stream].each { |path| server.get(path) }
        server.post("/read", "x" * 300_000)
        server.restart
        server.restart(:USR2)
        server.get
        server.stop

        assert_empty ours(server.log)
      end
    end

    def test_every_file_has_frozen_strings
      files = Dir["#{ROOT}/{lib,exe,test,bench}/**/*.{rb,ru}"] - Dir["#{ROOT}/bench/apps/*.ru"]
      assert_empty(files.reject { |file| File.read(file).include?("# frozen_string_literal: true\n") })
    end

    private

    # Warnings of other gems are their business.
    def ours(text) = text.lines.grep(/warning: /).grep(/#{Regexp.escape(ROOT)}\/(lib|exe)\//)
  end
end
