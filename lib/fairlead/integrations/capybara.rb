# frozen_string_literal: true

require "capybara"
require "fairlead/parts"

# For system tests: serves the app in fibers of a thread beside the test.
#
#   # test/application_system_test_case.rb
#   require "fairlead/integrations/capybara"
#   Capybara.server = :fairlead
#
# The test and the app share the process, and therefore its isolation level, which is :fiber from here on.
Fairlead::Isolation.establish

module Fairlead
  # The server that Capybara starts for each app that a test visits, in a thread of its own.
  module CapybaraServer
    # Options of Puma's that tests set, and that have no counterpart here.
    PUMA_OPTIONS = %i[
      daemon debug log_requests max_threads min_threads persistent_timeout queue_requests quiet silent threads verbose
    ].freeze
    private_constant :PUMA_OPTIONS

    class << self
      # Serves until the process ends.
      #
      # @param options [Hash] of Fairlead's configuration, by name; others are ignored.
      def run(app, port, host, options)
        forget_the_test
        host = "[#{host}]" if host.include?(":")
        configuration = Configuration.new(bind: "http://#{host}:#{port}", **known(options))
        listeners = configuration.bind.map { |uri| Listener.open(uri, backlog: configuration.backlog) }
        server = Server.new(app, configuration, listeners)
        Integrations.establish
        server.run
      end

      private

      # This thread inherits the storage of the test's fiber, and requests would inherit it in turn.
      def forget_the_test = Fiber.current.storage&.each_key { |key| Fiber[key] = nil }

      def known(options)
        Configuration.known(options, [:bind, *PUMA_OPTIONS]) { |name| "Capybara.server = :fairlead, { #{name}: … }" }
      end
    end
  end
end

Capybara.register_server(:fairlead) { |app, port, host, **options| Fairlead::CapybaraServer.run(app, port, host, options) }
