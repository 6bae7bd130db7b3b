# frozen_string_literal: true

module Fairlead
  # What only the supervisor knows (the database pools of the workers, which processes there are), asked over the control socket: by a
  # thread, every two seconds as long as somebody reads it. Readers get the latest answer and wait for nobody.
  class ServerStatus
    INTERVAL = 2.0
    # Seconds after the last reader until the thread ends; scrapes come every minute at the least.
    LINGER = 150.0
    # Seconds that a reader waits for an answer where there is none, or an old one.
    FIRST = 0.5
    private_constant :INTERVAL, :LINGER, :FIRST

    # @param address [String, nil] of the control socket; nil: there is none.
    # @param ask [#call] returns the answer of the socket at an address, or nil.
    def initialize(address, ask: ControlSocket.method(:ask))
      @address = address
      @ask = ask
      @lock = Thread::Mutex.new
      @answered = Thread::ConditionVariable.new
    end

    # @return [Hash] as `fairlead status` gets it; empty while there is no answer.
    def latest
      return {} unless @address

      @lock.synchronize do
        @read_at = Clock.now
        unless @thread&.alive?
          @thread = start
          @answered.wait(@lock, FIRST)
        end
        @latest || {}
      end
    end

    private

    # Threads inherit the storage of the fiber that makes them: this one belongs to no request.
    def start = Fiber.new(blocking: true, storage: {}) { Thread.new { refresh } }.resume

    def refresh
      Thread.current.name = "fairlead status"
      while Clock.now - @read_at < LINGER
        answer = @ask.call(@address)
        @lock.synchronize do
          @latest = answer if answer
          @answered.broadcast
        end
        sleep INTERVAL
      end
    end
  end
end
