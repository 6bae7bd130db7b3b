# frozen_string_literal: true

require "open3"
require_relative "../../helper"

module Fairlead
  # An app that has moved from Puma, and its config/puma.rb.
  # Covers configuration/puma_file.rb
  class PumaFileTest < Test
    SERVE = 'run ->(_) { [200, {}, ["served"]] }'
    PUMA = <<~'RUBY'
      threads_count = ENV.fetch("RAILS_MAX_THREADS", 3)
      threads threads_count, threads_count
      port ENV.fetch("PORT", 3000)
      plugin :tmp_restart
      plugin :solid_queue if ENV["WITH_QUEUE"]
      plugin :solid_queue if ENV["WITHOUT_QUEUE"]
      plugin :yabeda
      stage = ENV.fetch("RAILS_ENV") { "development" }
      if stage == "production"
        File.write("has-run", "")
        on_worker_boot do |index|
          Statistics.start(index)
        end
      else
        on_worker_shutdown { Statistics.stop }
      end
      workers 3
      before_worker_boot { ActiveRecord::Base.establish_connection if defined?(ActiveRecord) }
      ENV["CACHE"] ||= "on"
      before_fork { Statistics.prepare }
    RUBY
    BANNER = [
      '5: `plugin :solid_queue` has no effect. Write `solid_queue "fork"` into config/fairlead.rb.',
      "7: `plugin :yabeda` has no effect. Fairlead has no plugins: start in after_fork { … } or as a process what it starts.",
      "11: `on_worker_boot` has no effect. Write it into config/fairlead.rb.",
      "10, 19: code has no effect. Put it into config/initializers, or into config/fairlead.rb, and remove it here."
    ].freeze
    private_constant :SERVE, :PUMA, :BANNER

    # The file of config/fairlead.rb has some of it by now.
    def test_what_has_no_effect_is_named_with_what_to_write_instead
      files = { "config/puma.rb" => PUMA, "config/fairlead.rb" => "workers 1\nbefore_fork { nil }\n" }
      server = with_server(SERVE, "-e", "production", lint: false, files:, env: { "WITH_QUEUE" => "1" })

      assert_equal BANNER, server.log.scan(%r{^  puma       config/puma\.rb:(.*)$}).flatten
      refute_path_exists server.path("has-run")
      said, status = Open3.capture2({ "WITH_QUEUE" => "1" }, RbConfig.ruby, "-rbundler/setup", File.join(ROOT, "exe/fairlead"), "doctor",
                                    "-e", "production", chdir: server.directory)

      assert_equal 1, status.exitstatus
      assert_match(%r{^✗ config/puma\.rb: `on_worker_boot` has no effect.*\n    config/puma\.rb:11\n    → Write it into config/fairlead\.rb\.$}, said)
      assert_equal BANNER.size, said.scan("has no effect").size
    end

    # That of Rails 8.1, as its generator fills it in, and a hook for another environment.
    def test_the_file_of_a_new_app_has_no_line_without_its_queue
      template = File.read(File.join(Gem.loaded_specs.fetch("railties").full_gem_path, "lib/rails/generators/rails/app/templates/config/puma.rb.tt"))
      puma = template.gsub(/^<%.*%>\n/, "")
      assert_includes puma, "plugin :solid_queue"

      assert_empty losses(puma)
      assert_equal ["`plugin :solid_queue`"], losses(puma, "SOLID_QUEUE_IN_PUMA" => "true").map(&:what)
    end

    def test_a_plugin_is_named_by_a_word_or_a_symbol
      assert_equal %w[`plugin\ :yabeda` `plugin\ :statsd`], losses(%(plugin "tmp_restart"\nplugin "yabeda"\nplugin(:statsd))).map(&:what)
    end

    private

    def losses(text, variables = {})
      Dir.mktmpdir do |folder|
        path = File.join(folder, "puma.rb")
        File.write(path, text)
        before = ENV.to_h
        ENV.update(variables)
        Configuration::PumaFile.new(path, Configuration.new(environment: "production")).losses
      ensure
        ENV.replace(before)
      end
    end
  end
end
