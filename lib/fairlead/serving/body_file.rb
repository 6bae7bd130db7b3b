# frozen_string_literal: true

require "tempfile"

module Fairlead
  # A body that is larger than `body_buffer`. As on Puma, the app is called once it has come whole, and gets it as a file: it
  # can be read again, has every method of IO, and takes no memory. An upload that its client breaks off never reaches the app.
  #
  # The file is unlinked at once, so that nothing is left of it when the process is killed.
  module BodyFile
    # A body that cannot be stored; the message says why, and what helps.
    class NotStored < Error; end

    CHUNK = 65_536
    WAIT = "puma.request_body_wait"
    private_constant :CHUNK, :WAIT

    class << self
      # Receives the rest of a body, and makes the file the request's `rack.input`. The fiber waits for the client.
      #
      # @param env [Hash] the request's, whose `rack.input` is an {RequestBody}.
      # @return [Tempfile] to be closed at the end of the request.
      # @raise [ClientGone] when the rest will never come.
      # @raise [NotStored] when the disk is full, or there is no descriptor left.
      def receive(env)
        input = env["rack.input"]
        began = Clock.now
        file = create
        begin
          copy(input, file)
        rescue Exception
          file.close!
          raise
        end
        decode(env, file.size) if env.key?("HTTP_TRANSFER_ENCODING")
        env[WAIT] = env.fetch(WAIT, 0.0) + ((Clock.now - began) * 1000) # see environment.c
        env["rack.input"] = file
      end

      private

      def create
        file = Tempfile.new("fairlead-body", binmode: true)
        file.unlink
        file.sync = true
        file
      rescue SystemCallError => error
        raise NotStored, complaint(error)
      end

      def copy(input, file)
        buffer = String.new(capacity: CHUNK, encoding: Encoding::BINARY)
        write(file, buffer) while input.read(CHUNK, buffer)
        file.rewind
      end

      # Without the GVL, since a disk may be slow: a scheduler's io_write would hold it.
      def write(file, bytes)
        Fiber.blocking { file.write(bytes) }
      rescue SystemCallError => error
        raise NotStored, complaint(error)
      end

      # The body that was received is no longer in chunks (RFC 9112, 7.1.3).
      def decode(env, size)
        env.delete("HTTP_TRANSFER_ENCODING")
        env["CONTENT_LENGTH"] = size.to_s
      end

      def complaint(error)
        "the body of the request cannot be stored in #{Dir.tmpdir} (#{error.message}): make room, set TMPDIR to another " \
          "folder, or pass bodies on as they come (stream_request_bodies)"
      rescue ArgumentError # there is no such folder at all
        "the body of the request cannot be stored (#{error.message}): set TMPDIR to a folder that can be written to"
      end
    end
  end
end
