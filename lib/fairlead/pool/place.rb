# frozen_string_literal: true

module Fairlead
  class Pool
    # One of a pool's places: it holds a connection, or is room for one (then #connection is nil and #connected false).
    # A pool has as many places as its size. Handing over places instead of connections lets room for a new connection
    # go to the oldest waiter, too.
    #
    # Written under the pool's lock, except #connection and #connected, which belong to the holder.
    class Place
      # @return [Object, nil] what the pool's block made.
      attr_accessor :connection
      # @return [Boolean] whether there is a connection; it may be nil or false itself.
      attr_accessor :connected
      # @return [Integer] the pool's generation in which the connection was made; see Pool#reload.
      attr_accessor :generation
      # @return [Fiber, nil] who holds it, and the thread of that fiber.
      attr_accessor :fiber, :thread
      # @return [Integer] how often the holder has checked it out and not yet in.
      attr_accessor :depth
      # @return [Float] monotonic seconds: when it was checked out, or became idle.
      attr_accessor :since
      # @return [Proc, nil] what to do with the connection instead of keeping it.
      attr_accessor :discard

      def initialize
        @connection = @fiber = @thread = @discard = nil
        @connected = false
        @generation = @depth = 0
        @since = 0.0
      end

      # Makes it room for a new connection.
      #
      # @return [Object, nil] the connection that was there.
      def vacate
        connection = @connection
        @connected = false
        @connection = @discard = nil
        connection
      end

      # @return [Boolean] whether its holder can never give it back.
      def abandoned? = !@thread.alive? || !@fiber.alive?
    end
  end
end
