# frozen_string_literal: true

# Loaded by every server before anything else: the bundle's gems, and nothing without YJIT.
abort "no YJIT in #{RUBY_DESCRIPTION}" unless RubyVM::YJIT.enabled?
require "bundler/setup"
