# frozen_string_literal: true

module Fairlead
  module Drivers
    module Mysql2
      # Calls that block are run by another thread. The client must not be used, nor closed, before such a call has returned,
      # also when nobody waits for it any more.
      module Calls
        # A call, and whether it runs.
        class Call
          # @return [Mysql2::Error, nil] what it has raised.
          attr_accessor :error

          def initialize
            @state = :waiting
            @lock = ::Thread::Mutex.new
            @ended = ::Thread::Queue.new
          end

          # Of the thread.
          #
          # @return [Boolean] false: it must not be run any more.
          def begin? = move(:waiting, :running)

          # Of whoever waits for it no more: one that has not begun never will.
          def drop = move(:waiting, :dropped)

          # Of the thread.
          #
          # @return [Boolean] whether {#leave} was called before.
          def end
            left = @lock.synchronize { (@state == :left).tap { @state = :ended } }
            @ended.push(true)
            left
          end

          # Nobody waits for its end any more.
          #
          # @return [Boolean] false: it has ended before.
          def leave = move(:running, :left)

          # @return [Boolean] whether it has ended, or never begins, within so many seconds.
          def over?(seconds) = drop || @state != :running || !@ended.pop(timeout: seconds).nil?

          private

          def move(from, to) = @lock.synchronize { @state == from && (@state = to) ? true : false }
        end
        private_constant :Call

        private

        # @yield in another thread
        def in_thread
          call = @fairlead_call = Call.new
          result = Fairlead.offload do
            next unless call.begin?

            begin
              yield
            rescue ::Mysql2::Error => error
              raise call.error = error
            ensure
              CLOSE.bind_call(self) if call.end
            end
          end
          @fairlead_call = nil
          result
        end
      end
    end
  end
end
