# frozen_string_literal: true

require "capybara"
require "fairlead/parts"

# For system tests: the app is served by fibers of a thread beside the test.
#
#   # test/application_system_test_case.rb
#   require "fairlead/integrations/capybara"
#   Capybara.server = :fairlead
#
# The test and the app share the process, and so the isolation level: it is :fiber from here on.
Fairlead::Isolation.establish

module Fairlead
  # What Capybara has for each app that a test visits: a server in a thread of its own.
  module CapybaraServer
    # Puma's, which tests set for it. Nothing here corresponds to them.
    PUMAS = %i[daemon debug log_requests max_threads min_threads persistent_timeout queue_requests quiet silent threads verbose].freeze
    private_constant :PUMAS

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

      # A thread inherits the storage of the fiber that starts it, and requests that of their thread.
      def forget_the_test = Fiber.current.storage&.each_key { |key| Fiber[key] = nil }

      def known(options)
        ours, others = options.transform_keys { |name| name.to_s.downcase.to_sym }
                              .partition { |name, _| Configuration::TABLE.key?(name) && name != :bind }
        others.each do |name, _|
          next if PUMAS.include?(name)

          warn "fairlead: Capybara.server = :fairlead, { #{name}: … }: there is no such option, and it is ignored." \
            "#{Configuration.suggestion(name, Configuration::TABLE.keys)}"
        end
        ours.to_h
      end
    end
  end
end

Capybara.register_server(:fairlead) { |app, port, host, **options| Fairlead::CapybaraServer.run(app, port, host, options) }
