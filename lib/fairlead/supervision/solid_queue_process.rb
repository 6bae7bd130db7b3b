# frozen_string_literal: true

module Fairlead
  # Solid Queue beside the workers (the option `solid_queue`).
  class SolidQueueProcess < SideProcess
    # @param once (see SideProcess#initialize)
    # @return [SolidQueueProcess, nil] nil if the option is off.
    # @raise [ConfigurationError] if the app, loaded already, has no Solid Queue.
    def self.for(configuration, app, once: false)
      return if configuration.solid_queue == "off"
      raise ConfigurationError, missing(configuration) if app && !defined?(::SolidQueue)

      new(configuration, app, once:)
    end

    def self.missing(configuration)
      "#{configuration.source(:solid_queue)}: `solid_queue` is #{configuration.solid_queue.inspect}, and the app has no " \
        "Solid Queue. Add the gem solid_queue to the Gemfile, or remove the line."
    end

    def initialize(configuration, app, once: false)
      super(configuration, once:)
      @app = app
    end

    private

    def name = "Solid Queue"

    # It gives the jobs that run back to the queue when it is stopped at once (QUIT).
    def call
      @app || AppLoader.load(@configuration)
      raise ConfigurationError, self.class.missing(@configuration) unless defined?(::SolidQueue)

      ::SolidQueue::Supervisor.start(mode: @configuration.solid_queue.to_sym)
    end
  end
end
