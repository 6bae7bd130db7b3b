# frozen_string_literal: true

module Fairlead
  class Stall
    # Where the stalls of all workers come together: they are logged, and shown to who asks. Of the first process.
    class Desk
      # How many are told to who asks.
      MOST = 40
      private_constant :MOST

      # @param configuration [Configuration]
      # @param addresses [Array<String>] what is served
      def initialize(configuration, addresses)
        @configuration = configuration
        @addresses = addresses
        @folder = Dir.pwd
        @board = Board.new
        @lock = Thread::Mutex.new
        @inquiry = Inquiry.open { about }
      end

      # @return [Array<IO>] readable when {#attend} should be called.
      def ios = @inquiry ? [@inquiry.io] : []

      # Answers who asks now.
      def attend = @inquiry&.attend

      # @param stall [Stall]
      def add(stall)
        line = @lock.synchronize { @board.add(stall) }
        Log.say "Worker process #{stall.pid}: #{line}" if line
      rescue StandardError => error # whatever a worker says, the others must be served
        Log.say "A stall could not be told of: #{error.full_message(highlight: false)}"
      end

      def close = @inquiry&.close

      private

      def about
        stalls = @lock.synchronize { @board.worst(MOST) }
        { pid: Process.pid, folder: @folder, tag: @configuration.tag, addresses: @addresses,
          limit: @configuration.stall_report, stalls: }
      end
    end
  end
end
