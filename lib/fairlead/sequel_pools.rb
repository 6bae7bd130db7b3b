# frozen_string_literal: true

module Fairlead
  # Sequel's pools know who has a connection by the thread: two requests in fibers of one thread would be one owner, and
  # use the same connection at once. So they go by fiber, as Sequel's own extension has it.
  module SequelPools
    # To be called by whoever serves, once the app is loaded. May be called again.
    #
    # @return [void]
    def self.isolate
      ::Sequel.extension(:fiber_concurrency) if loaded?
    end

    # To be called before a fork: closes what the app has opened while it was loaded. Each worker opens its own.
    #
    # @return [void]
    def self.release
      ::Sequel::DATABASES.each(&:disconnect) if loaded?
    end

    def self.loaded? = defined?(::Sequel::DATABASES) ? true : false
    private_class_method :loaded?
  end
end
