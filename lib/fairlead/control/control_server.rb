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
      # @param pid [Integer] by which the server is known
      # @param generation [Integer] how often new code was started before
      # @param named [String, nil] the folder by the name under which it was entered, which may lead elsewhere by now
      def initialize(configuration, addresses, pid: Process.pid, generation: 0, named: nil)
        @pid = pid
        @restarts = { generation:, serving: false, failures: 0, failure: nil }
        @configuration = configuration
        @status = Status.new(configuration)
        @addresses = addresses
        @folder = Dir.pwd
        @named = named
        @board = Board.new
        @lock = Thread::Mutex.new
        @inquiry = Inquiry.open { about }
      end

      # @return [Status] what is said of the server beside its stalls.
      attr_reader :status

      # @return [Array<IO>] readable when {#attend} should be called.
      def ios = @inquiry ? @inquiry.ios : []

      # (see Inquiry#attend)
      def attend(&) = @inquiry&.attend(&)

      # @param stall [Stall]
      def add(stall)
        line = @lock.synchronize { @board.add(stall) }
        Log.say "Worker process #{stall.pid}: #{line}" if line
      rescue StandardError => error # whatever a worker says, the others must be served
        Log.say "A stall could not be told of: #{error.full_message(highlight: false)}"
      end

      # @param message [Messages::Stalled, Messages::Lasting, Messages::Shown]
      # @param pid [Integer] of the worker that says it
      def hear(message, pid)
        case message
        when Messages::Stalled then add(Stall.new(**message.stall.transform_keys(&:to_sym)))
        when Messages::Lasting then add_lasting(message, pid)
        when Messages::Shown then status.pools.note(pid, message.pools)
        end
      end

      # All workers serve.
      def serving = @restarts[:serving] = true

      # New code could not be started.
      def fail(description)
        @restarts.update(failures: @restarts[:failures] + 1, failure: description)
      end

      def close
        @inquiry&.close
        @inquiry = nil
      end

      private

      def add_lasting(message, pid)
        method, path = message.request.split(" ", 2)
        add(Snapshot.stall(message.to_h.merge(lasting: true), pid:, method:, path:))
      end

      def about
        stalls = @lock.synchronize { @board.worst(MOST) }
        { pid: @pid, supervisor: Process.pid, restarts: @restarts, folder: @folder, named: @named, tag: @configuration.tag,
          addresses: @addresses, limit: @configuration.stall_report, stalls:, status: @status.to_h }
      end
    end
  end
end
