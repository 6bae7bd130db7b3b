# frozen_string_literal: true

require_relative "response_stream/writers"

module Fairlead
  # What a callable body writes to, and reads the rest of the request from (Rack specification, "Streaming Body").
  class ResponseStream
    # @param request [Request]
    # @param scheduler [Scheduler]
    # @param ended [Thread::Queue] gets an entry when the stream is closed.
    def initialize(request, scheduler, ended)
      @request = request
      @scheduler = scheduler
      @ended = ended
      @used = false
      @input = request.env["rack.input"]
      @closed = false
    end

    def read(...)
      @used = true
      @input.read(...)
    end

    def readpartial(...)
      @used = true
      @input.readpartial(...)
    end

    # Waits while the client is too slow to take it.
    #
    # @param string [String]
    # @return [Integer] its bytes
    # @raise [ClientGone]
    def write(string)
      raise IOError, "closed stream" if @closed

      @used = true
      string = string.to_s
      size = string.bytesize
      ResponseStream.write(@request, string, @scheduler)
      size
    end

    def <<(string)
      write(string)
      self
    end

    # Sends what was written now. Otherwise it leaves when the fiber waits.
    def flush
      @request.flush unless @closed
      self
    end

    def close_read = nil

    def close_write = close

    def close(_error = nil)
      return if @closed

      @closed = true
      begin
        ResponseStream.finish(@request)
      ensure
        @scheduler.wake(@request.id) # others may wait to write
        @ended.push(true)
      end
      nil
    end

    def closed? = @closed

    # @api private
    # @return [Boolean] whether the app has read from it or written to it.
    def used? = @used

    # @api private
    # Calls a callable body. The response ends when its stream is closed, or when the body has returned and no thread or task is
    # left that could close it: see {Writers}. If one of those has failed, the client sees that the response is not whole.
    def self.serve(request, scheduler, body)
      ended = Thread::Queue.new
      writers = Writers.new
      writers.run(body, new(request, scheduler, ended))
      return if request.answered?

      writers.await(request, ended) ? finish(request) : request.abandon
    ensure
      writers.forget
    end

    # @api private
    # Sends the trailers of the app, and ends the response.
    def self.finish(request)
      return if request.answered?

      if (trailers = request.env["fairlead.response_trailers"])
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
        request.awaits_room? ? scheduler.await(request) { request.awaits_room? } : scheduler.give_way
      end
      scheduler.give_way if rest == false
    end
  end
end
