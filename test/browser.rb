# frozen_string_literal: true

require "ferrum"
require "tmpdir"

module Fairlead
  # Headless Chromium, one for all tests of a process.
  module Browser
    CHROMIUM = ENV["CHROMIUM"] || %w[chromium google-chrome chromium-browser]
      .flat_map { |name| ENV.fetch("PATH").split(":").map { |folder| File.join(folder, name) } }
      .find { |path| File.executable?(path) }
    FLAGS = %w[no-sandbox disable-gpu no-first-run disable-background-networking disable-component-update
               disable-sync].to_h { |flag| [flag, nil] }.freeze
    private_constant :CHROMIUM, :FLAGS

    class << self
      # @return [Ferrum::Page] the caller closes it.
      def page = browser.create_page

      private

      def browser
        @browser ||= begin
          profile = Dir.mktmpdir("fairlead-chromium-")
          browser = Ferrum::Browser.new(browser_path: CHROMIUM, browser_options: FLAGS.merge("user-data-dir" => profile),
            headless: true, window_size: [1200, 900], timeout: 30, process_timeout: 30)
          Minitest.after_run do
            browser.quit
            FileUtils.remove_entry(profile, true)
          end
          browser
        end
      end
    end
  end
end
