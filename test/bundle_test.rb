# frozen_string_literal: true

require "tmpdir"
require_relative "bundle"
require_relative "helper"

module Fairlead
  class BundleTest < Test
    LOCK = <<~TEXT
      GEM
        remote: file:///nowhere/
        specs:
          nothing (1.0)

      PLATFORMS
        ruby

      DEPENDENCIES
        nothing
    TEXT

    def test_it_says_what_bundler_says_where_its_gems_cannot_be_had
      Dir.mktmpdir("bundle-", File.join(ROOT, "tmp")) do |folder|
        File.write("#{folder}/Gemfile", "source \"file:///nowhere/\"\ngem \"nothing\"\n")
        File.write("#{folder}/Gemfile.lock", LOCK)
        place = folder.delete_prefix("#{ROOT}/")
        said = Bundle.new("#{place}/Gemfile", path: "#{place}/gems").missing

        assert_match(/\AThe gems of #{folder}\/Gemfile cannot be installed:\n.*nowhere.*bundle install: pid \d+ exit \d+\z/m, said)
      end
    end
  end
end
