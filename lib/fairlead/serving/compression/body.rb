# frozen_string_literal: true

module Fairlead
  class Compression
    # Yields what each part becomes at once, so that streams stay streams.
    class Body
      # Bytes that are compressed before others have their turn: the caller writes each slice, and gives way.
      SLICE = 65_536
      # A line that is no event: its bytes open the coding.
      COMMENT = ":\n"
      # What ends an event (WHATWG HTML, 9.2.6).
      EVENT_END = /(?:\n\n|\r\r|\r\n\r\n)\z/n
      LONGEST_END = 4
      private_constant :COMMENT, :EVENT_END, :LONGEST_END

      # @param parts [#each] of the app's response
      # @param encoder [Class] of {Encoders}
      def initialize(parts, encoder)
        @parts = parts
        @encoder = encoder
        @tail = "".b
        @lock = Mutex.new # from the encoder to the client: what comes out has an order
      end

      # @return [Request, nil] that of an event stream: the core keeps it alive, and ends it in order, with what the coding allows.
      attr_writer :event_stream

      # Threads of the app may yield too, also when the caller has left.
      #
      # @yieldparam [String] which the block has written when it returns.
      def each
        encoder = @encoder.new
        if @event_stream
          yield encoder.compress(COMMENT, true)
          describe(encoder)
        end
        slices do |slice, last|
          @lock.synchronize do
            raise IOError, "closed stream" unless encoder

            yield encoder.compress(slice, last)
            described(encoder, slice, last) if @event_stream
          end
        end
        # Closed with it: what a thread yields now would begin anew in an encoder that another response gets.
        @lock.synchronize do
          rest = encoder.finish
          encoder.close
          encoder = nil
          yield rest
        end
      ensure
        unless_in_use do
          encoder&.close
          encoder = nil
        end
      end

      private

      # A thread that is in the encoder leaves it to the garbage collector.
      def unless_in_use
        return unless @lock.try_lock

        begin
          yield
        ensure
          @lock.unlock
        end
      end

      def described(encoder, slice, last)
        @tail = last_bytes(@tail + last_bytes(slice).b)
        describe(encoder) if last
      end

      def last_bytes(text) = text.byteslice(-LONGEST_END, LONGEST_END) || text

      def describe(encoder)
        between_events = @tail.empty? || EVENT_END.match?(@tail)
        @event_stream.event_coding(@encoder::NOTHING, between_events ? encoder.ending(@event_stream.last_event) : "")
      end

      # @yieldparam last [Boolean] whether it ends what the app has written.
      def slices
        @parts.each do |part|
          next if part.nil? || part.empty?

          at = 0
          while at < part.bytesize
            slice = part.byteslice(at, SLICE)
            at += SLICE
            yield slice, at >= part.bytesize
          end
        end
      end
    end
  end
end
