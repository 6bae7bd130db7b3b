# frozen_string_literal: true

# What an app that has stayed with an older Rails (@rails) is served with; see test/rails/older_rails_test.rb.
source "https://rubygems.org"

gemspec path: "../..", name: "fairlead"
gem "actionpack", @rails
gem "activerecord", @rails
gem "json", "~> 2.0" # 3 refuses what these ask of it
gem "pg"
gem "railties", @rails
gem "sqlite3"
