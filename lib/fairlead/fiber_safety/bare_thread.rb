# frozen_string_literal: true

module Fairlead
  # A thread that belongs to no request. Threads inherit the storage of the fiber that makes them, and keep what is in it alive.
  module BareThread
    # @param name [String, nil]
    # @param type [Class] of the thread.
    # @param report [Boolean] false: whoever awaits its end gets its exception, and Ruby prints none.
    # @return [Thread]
    # @raise [ThreadError] if the system allows no more threads.
    def self.start(name = nil, type: ::Thread, report: false)
      ::Fiber.new(blocking: true, storage: {}) do
        type.new do
          ::Thread.current.report_on_exception = report
          ::Thread.current.name = name if name
          ThreadParent.forget
          yield
        end
      end.resume
    end
  end
end
