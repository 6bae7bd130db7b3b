# frozen_string_literal: true

module Fairlead
  # Tells the app of requests that have ended, if it has subscribed to `request.fairlead` or called {Fairlead.on_request} by the time the
  # server starts.
  module RequestNotification
    EVENT = "request.fairlead"

    class << self
      # @return [Boolean] whether anybody is told.
      def wanted? = Fairlead.request_subscribers.any? || listening?

      # @param details [Hash] see {Fairlead.on_request}.
      def publish(details)
        ::ActiveSupport::Notifications.instrument(EVENT, details) if listening?
        Fairlead.request_subscribers.each { |subscriber| subscriber.call(details) }
      end

      private

      def listening?
        defined?(::ActiveSupport::Notifications) && ::ActiveSupport::Notifications.notifier.listening?(EVENT) ? true : false
      end
    end
  end
end
