# frozen_string_literal: true

module Fairlead
  # What a callable body writes to, and reads the rest of the request from (Rack specification, "Streaming Body").
  class Stream
    # @param request [Request]
    # @param scheduler [Scheduler]
    def initialize(request, scheduler)
      @request = request
      @scheduler = scheduler
      @input = request.env["rack.input"]
      @closed = false
    end

    def read(...) = @input.read(...)

    def readpartial(...) = @input.readpartial(...)

    # Waits while the client is too slow to take it.
    #
    # @param string [String]
    # @return [Integer] its bytes
    # @raise [ClientGone]
    def write(string)
      raise IOError, "closed stream" if @closed

      string = string.to_s
      size = string.bytesize
      Stream.write(@request, string, @scheduler)
      size
    end

    def <<(string)
      write(string)
      self
    end

    # What was written leaves now; else it does when the fiber waits.
    def flush
      @request.flush unless @closed
      self
    end

    def close_read = nil

    def close_write = close

    def close(_error = nil)
      return if @closed

      @closed = true
      Stream.finish(@request)
      nil
    end

    def closed? = @closed

    # @api private
    # What the app has to say behind the body, then its end.
    def self.finish(request)
      if (trailers = request.env["fairlead.response_trailers"]) && !request.answered?
        trailers = trailers.call if trailers.respond_to?(:call)
        trailers.each { |name, value| request.trailer(name.to_s, value.to_s) }
      end
      request.finish
    end

    # @api private
    def self.write(request, string, scheduler)
      string = string.to_s unless string.is_a?(String)
      while (rest = request.write(string))
        string = rest
        request.awaits_room? ? scheduler.await(request) : scheduler.give_way
      end
      scheduler.give_way if rest == false
    end
  end
end
