# frozen_string_literal: true

module Fairlead
  class Stall
    # Tells the app of a stall: its subscribers and, in development, its log.
    module Notification
      EVENT = "stall.fairlead"
      # Frames that are logged.
      FRAMES = 5
      private_constant :FRAMES

      # @param stall [Stall]
      def self.publish(stall)
        ::ActiveSupport::Notifications.instrument(EVENT, stall.payload) if defined?(::ActiveSupport::Notifications)
        Fairlead.stall_subscribers.each { |subscriber| subscriber.call(stall) }
      end

      # Logs it with its backtrace.
      #
      # @param stall [Stall]
      def self.log(stall)
        text = "#{stall}\n#{frames(stall).map { |line| "  #{line}" }.join("\n")}"
        rails = ::Rails.logger if defined?(::Rails.logger)
        rails ? rails.warn(text) : warn("fairlead: #{text}")
      end

      def self.frames(stall)
        cleaned = ::Rails.backtrace_cleaner.clean(stall.backtrace) if defined?(::Rails.backtrace_cleaner)
        (cleaned.nil? || cleaned.empty? ? stall.backtrace : cleaned).first(FRAMES)
      end
      private_class_method :frames
    end
  end
end
