# frozen_string_literal: true

module Fairlead
  class Stall
    # A stall is told to the app: to who subscribes, and, in development, in the log of its request.
    module Notice
      # The name of the event.
      EVENT = "stall.fairlead"
      # Frames that are shown.
      FRAMES = 5
      private_constant :FRAMES

      # @param stall [Stall]
      def self.publish(stall)
        ::ActiveSupport::Notifications.instrument(EVENT, stall.payload) if defined?(::ActiveSupport::Notifications)
        Fairlead.stall_subscribers.each { |subscriber| subscriber.call(stall) }
      end

      # To be called at the end of a request, in its fiber, while its log is still tagged with it.
      #
      # @param env [Hash]
      # @param teller [Teller]
      def self.write(env, teller)
        return unless env.key?(Teller::KEY)

        teller.stalls_of(env).each do |stall|
          text = "#{stall}\n#{frames(stall).map { |line| "  #{line}" }.join("\n")}"
          rails = ::Rails.logger if defined?(::Rails.logger)
          rails ? rails.warn(text) : env["rack.errors"].puts("fairlead: #{text}")
        end
      end

      def self.frames(stall)
        cleaned = ::Rails.backtrace_cleaner.clean(stall.backtrace) if defined?(::Rails.backtrace_cleaner)
        (cleaned.nil? || cleaned.empty? ? stall.backtrace : cleaned).first(FRAMES)
      end
      private_class_method :frames
    end
  end
end
