# frozen_string_literal: true

module Fairlead
  # Which process serves, by the number of workers and by who has started this process.
  module Supervision
    # @param start_command [StartCommand, nil] nil: it is unknown, and there is no hot restart.
    # @param app [#call, nil] nil: it is loaded from the configuration's `rackup`.
    # @return [#run, #stop] `run` serves until the server ends, and answers the exit status.
    # @raise [ConfigurationError]
    def self.server(configuration, start_command, app: nil)
      link = ParentLink.current
      rehearse(configuration, link, app) if link&.rehearsal?
      if configuration.workers.zero?
        raise ConfigurationError, "#{configuration.source(:workers)}: `workers 0` needs a full restart." if link

        Foreground.new(configuration, start_command, app:)
      elsif link
        Supervisor.new(configuration, start_command, link, app:)
      else
        prepare_fork if app
        InitProcess.new(configuration, start_command) { |parent| Supervisor.new(configuration, start_command, parent, app:).run }
      end
    end

    # Ends this process once the app is loaded.
    def self.rehearse(configuration, link, app)
      Fairlead.configuration = configuration
      app || AppLoader.load(configuration)
      link.post(Messages::Ready.new)
      Process.exit!(0)
    end

    # An app that is loaded already (`rackup`) may have opened database connections. Its memory is compacted, so that it stays
    # shared with the supervisor.
    def self.prepare_fork
      ActiveRecord::LeaseCleanup.disconnect_before_fork
      SequelPools.release
      BootThreads.report
      Process.warmup if Process.respond_to?(:warmup)
    end
    private_class_method :rehearse, :prepare_fork
  end
end
