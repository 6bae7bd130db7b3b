# frozen_string_literal: true

module Fairlead
  # Tells a service manager that the server is well (`WatchdogSec=` of systemd) as long as a worker answers: the question goes
  # through the worker's control thread to the reactor that drives its loop, and the answer comes from there. A supervisor that is
  # stuck asks nobody, and reports nothing.
  #
  # Before anything serves, the server counts as well: a thread reports so while the app is loaded, for `boot_timeout`.
  class Watchdog
    TIMES = 4 # reports in each interval of the service manager
    PATIENCE = 2 # reports for which a question may remain unanswered
    private_constant :TIMES, :PATIENCE

    # @return [Watchdog, nil] nil: the service manager does not ask for it.
    def self.for(service_manager, boot_timeout)
      new(service_manager).tap { |watchdog| watchdog.load_for(boot_timeout) } if service_manager.watchdog
    end

    def initialize(service_manager)
      @service_manager = service_manager
      @every = service_manager.watchdog / TIMES
      @next = 0.0
      @asked = {} # one => when, until it answers
    end

    def load_for(seconds)
      @loading = Thread.new do
        (seconds / @every).ceil.times do
          @service_manager.well
          sleep @every
        end
      end
    end

    # From now on {#check} reports.
    def loaded = @loading&.kill&.join

    def deadline = @next

    # Asks those that serve, and reports that one has answered in time.
    def check(now, serving)
      return if now < @next

      @next = now + @every
      @asked.keep_if { |one, _| serving.include?(one) }
      @service_manager.well if serving.empty? || serving.any? { |one| now - @asked.fetch(one, now) <= PATIENCE * @every }
      (serving - @asked.keys).each do |one|
        @asked[one] = now
        yield one
      end
    end

    # One of them has answered. May be called from any thread.
    def answered(one) = @asked.delete(one)
  end
end
