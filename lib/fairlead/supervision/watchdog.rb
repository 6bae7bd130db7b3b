# frozen_string_literal: true

require_relative "../parts"

module Fairlead
  # Tells a service manager that the server is well (`WatchdogSec=` of systemd), for as long as those that serve answer: a
  # question goes through the control thread of a worker to whoever drives its loop, and the answer comes back from there.
  # A supervisor that is stuck asks nobody, and tells nothing.
  #
  # While nobody serves yet, the server is well: a thread says so while the app is loaded, for `boot_timeout`. A command
  # that has begun anew in the place of its process has promised it already.
  class Watchdog
    # So often in each interval of the service manager.
    TIMES = 4
    # A question may remain unanswered for so many of ours.
    PATIENCE = 2
    private_constant :TIMES, :PATIENCE

    # @param notifier [ServiceManager]
    # @param boot_timeout [Float] seconds
    # @return [Watchdog, nil] nil: nobody wants to know.
    def self.for(notifier, boot_timeout)
      new(notifier).tap { |watchdog| watchdog.load_for(boot_timeout) } if notifier.watchdog
    end

    # @param notifier [#watchdog, #well]
    def initialize(notifier)
      @notifier = notifier
      @every = notifier.watchdog / TIMES
      @next = 0.0
      @asked = {}
      @answered = {}
    end

    # The app is being loaded.
    def load_for(seconds)
      @loading = Thread.new do
        (seconds / @every).ceil.times do
          @notifier.well
          sleep @every
        end
      end
    end

    # From now on {#attend} is called.
    def loaded = @loading&.kill&.join

    # @return [Float] when {#attend} should be called.
    def deadline = @next

    # @param now [Float] seconds of the monotonic clock.
    # @param serving [Array] who serves.
    # @yieldparam one [Object] one of them, who is to be asked.
    def attend(now, serving)
      return if now < @next

      @next = now + @every
      [@asked, @answered].each { |times| times.keep_if { |one, _| serving.include?(one) } }
      @notifier.well if well?(now, serving)
      (serving - @asked.keys).each do |one|
        @asked[one] = now
        yield one
      end
    end

    # One of them has answered. May be called from any thread.
    def answered(one)
      asked = @asked.delete(one)
      @answered[one] = asked if asked
    end

    private

    def well?(now, serving)
      serving.each { |one| @answered[one] ||= now }
      serving.empty? || serving.any? { |one| now - @answered[one] <= PATIENCE * @every * 1.1 }
    end
  end
end
