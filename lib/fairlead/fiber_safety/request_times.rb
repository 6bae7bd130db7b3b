# frozen_string_literal: true

require_relative "attributes"

module Fairlead
  # Where the time of a request goes. The scheduler calls {.wait} and {.waited} around each wait of a fiber. Whoever knows better what
  # a fiber waits for than the socket or lock shows says so with {.during}.
  module RequestTimes
    # Waits within the block count for this kind, unless a caller has said so already.
    #
    # @param kind [Integer] CONNECTION, DATABASE …
    # @return [Object] what the block returns.
    def self.during(kind)
      fiber = Fiber.current
      return yield if fiber.fairlead_waits_for

      begin
        fiber.fairlead_waits_for = kind
        yield
      ensure
        fiber.fairlead_waits_for = nil
      end
    end
  end
end
