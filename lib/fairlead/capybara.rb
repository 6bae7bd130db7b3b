# frozen_string_literal: true

require "capybara"
require "fairlead/parts"

# For system tests: the app is served by fibers of a thread beside the test.
#
#   # test/application_system_test_case.rb
#   require "fairlead/capybara"
#   Capybara.server = :fairlead
#
# The test and the app share the process, and so the isolation level: it is :fiber from here on.
Fairlead::Isolation.establish

Capybara.register_server(:fairlead) do |app, port, host, **options|
  host = "[#{host}]" if host.include?(":")
  configuration = Fairlead::Configuration.new(bind: "http://#{host}:#{port}", **options)
  listeners = configuration.bind.map { |uri| Fairlead::Listener.open(uri, backlog: configuration.backlog) }
  Fairlead::Server.new(app, configuration, listeners).run
end
