# frozen_string_literal: true

module Fairlead
  # The superclass of Fairlead's errors.
  class Error < StandardError; end

  # A mistake of the user. The message is complete (what, where, remedy): the command prints it without a backtrace and exits with
  # status 1. A worker that raises it is not started again.
  class ConfigurationError < Error; end

  # The app could not be loaded, or no worker could be started. The message is complete, as with ConfigurationError.
  class BootError < Error; end

  # Raised in a request whose `request_timeout` is over, where it waits, or at its next wait. The client has got its 504 by then:
  # nothing that the app returns reaches it, so the app should clean up and end.
  #
  # It is a RuntimeError and no Timeout::Error because of how libraries treat those: ActiveRecord passes a RuntimeError on as it is, and
  # Net::HTTP retries after a Timeout::Error.
  class RequestTimeout < RuntimeError; end
end
