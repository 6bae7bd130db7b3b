# frozen_string_literal: true

module Fairlead
  module Drivers
    module Mysql2
      # Runs calls that block in another thread. The client must not be used, nor closed, before such a call has returned, also
      # when nobody waits for it any more.
      module BlockingCalls
        # The state of one call.
        class Call
          # @return [Mysql2::Error, nil] what it has raised.
          attr_accessor :error

          def initialize
            @state = :waiting
            @lock = ::Thread::Mutex.new
            @ended = ::Thread::Queue.new
          end

          # In the thread.
          #
          # @return [Boolean] false: it must not be run any more.
          def start? = move(:waiting, :running)

          # In the thread.
          #
          # @return [Boolean] whether it was abandoned before.
          def finish
            abandoned = @lock.synchronize { (@state == :abandoned).tap { @state = :ended } }
            @ended.push(true)
            abandoned
          end

          # Nobody waits for its end any more: the thread has to close the client.
          #
          # @return [Boolean] false: it has ended before.
          def abandon = move(:running, :abandoned)

          # Cancels a call that has not begun.
          #
          # @return [Boolean] whether it is cancelled, or has ended within so many seconds.
          def over_within?(seconds) = move(:waiting, :cancelled) || @state != :running || !@ended.pop(timeout: seconds).nil?

          private

          def move(from, to) = @lock.synchronize { @state == from && (@state = to) ? true : false }
        end
        private_constant :Call

        private

        # @yield in another thread
        def in_thread
          call = @fairlead_call = Call.new
          result = Fairlead.offload do
            next unless call.start?

            begin
              yield
            rescue ::Mysql2::Error => error
              raise call.error = error
            ensure
              CLOSE.bind_call(self) if call.finish
            end
          end
          @fairlead_call = nil
          result
        end
      end
    end
  end
end
