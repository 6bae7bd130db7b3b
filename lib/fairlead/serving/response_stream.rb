# frozen_string_literal: true

require "async"

module Fairlead
  # What a callable body writes to, and reads the rest of the request from. The body may hand it on and return: "the application is
  # responsible for closing the stream" (Rack specification, "Streaming Body").
  class ResponseStream
    # Seconds from one look to the next whether the client is still there, where nothing interrupts the request when it goes.
    CHECK = 5
    # Looks at which the client has ended its side, and nothing was written, until it counts as gone. It may just be done with its request;
    # if it has gone, its system answers what is written with a reset.
    LOOKS = 12
    private_constant :CHECK, :LOOKS

    # @param request [Request]
    # @param scheduler [Scheduler]
    def initialize(request, scheduler)
      @request = request
      @scheduler = scheduler
      @input = request.env["rack.input"]
      @ended = Thread::Queue.new
    end

    def read(...) = input.read(...)

    def readpartial(...) = input.readpartial(...)

    # Waits while the client is too slow to take it.
    #
    # @param string [String]
    # @return [Integer] its bytes
    # @raise [ClientGone]
    # @raise [IOError] once the stream is closed, or the response has ended otherwise.
    def write(string)
      request = @request or raise IOError, "closed stream"
      string = string.to_s
      size = string.bytesize
      @written = true
      ResponseStream.write(request, string, @scheduler)
      size
    end

    def <<(string)
      write(string)
      self
    end

    # Sends what was written now. Otherwise it leaves when the fiber waits.
    #
    # @raise [IOError] once the response has ended otherwise than by {#close}.
    def flush
      @request&.flush
      self
    end

    def close_read = nil

    def close_write = close

    def close(_error = nil)
      request = @request or return
      @request = nil
      begin
        ResponseStream.finish(request)
      ensure
        @scheduler.wake(request.id) # others may wait to write
        @ended.push(true)
      end
      nil
    end

    def closed? = @request.nil?

    # @api private
    # Waits until the stream is closed, or the client has gone.
    def await_end(request)
      begin
        flush # the head: nothing may have followed it yet
      rescue IOError
        return # another thread has closed it meanwhile
      end
      looks = 0
      until request.gone? || looks == LOOKS || @ended.pop(timeout: CHECK)
        looks = request.half_closed? && !@written ? looks + 1 : 0
        @written = false
      end
    end

    # @api private
    # The response has ended: whoever keeps the stream does not keep the request.
    def release = @request = @input = nil

    # @api private
    # Calls a callable body. The response ends when its stream is closed, and breaks off when its client has gone or the server stops.
    # Nothing else ends it: who has the stream may still write.
    def self.serve(request, scheduler, body)
      stream = new(request, scheduler)
      before = tasks
      body.call(stream)
      stream.await_end(request)
    rescue ClientGone, ServerStopping, RequestTimeout => error
      (tasks - before).each { |task| scheduler.raise(task.fiber, error) if task.alive? } # those of the body are interrupted with it
      raise
    ensure
      stream.release
    end

    # @return [Array<Async::Task>] what the present task and its tasks have started; one that has ended keeps its own.
    def self.tasks
      found = []
      root = ::Async::Task.current
      root.traverse { |task, _| found << task if task.alive? && !task.transient? && !task.equal?(root) } if root.children?
      found
    end
    private_class_method :tasks

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

    private

    def input = @input || raise(IOError, "closed stream")
  end
end
