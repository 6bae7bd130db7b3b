# frozen_string_literal: true

require "monitor"
require "stringio"
require "tempfile"

module Fairlead
  # Which callbacks from C may switch fibers? All but those of a library that sets state of its thread or process, calls Ruby, and relies on
  # that state afterwards: libxml2's error handler, for example. A thread of its own keeps that state; other fibers of the thread change it.
  # Pointers that are left in it end the process.
  #
  # A method in {TABLE} calls Ruby back in that way. In a serving fiber no wait happens within it:
  # - `:reads` an input: what has to be waited for is read before, into a file if it is large.
  # - `:calls` the app's own code: what waits there blocks its thread. Other reactors of the worker serve the other requests meanwhile.
  # - `:calls_alone` likewise, with state that belongs to its object only: other fibers wait until it ends. The app's code may wait.
  # - `:measures_stack` of its thread, which a fiber is not on: it runs in a thread of its own.
  #
  # A handler of SAX events may wait: while one is called, libxml2's error handler is unset. So may a function in XSLT: libxslt's handler
  # is the process', so that threads mix messages, too.
  module Callbacks
    # Row of {Compatibility} => class or module ("Name." stands for its singleton) => method => what it calls back.
    TABLE = {
      nokogiri: {
        "Nokogiri::XML::Document." => { read_io: :reads },
        "Nokogiri::HTML4::Document." => { read_io: :reads },
        "Nokogiri::XML::Reader." => { from_io: :reads },
        "Nokogiri::XML::XPathContext" => { evaluate: :calls }
      },
      # V8's flag single_threaded has it measure. Whether it is set cannot be asked.
      mini_racer: {
        "MiniRacer::Context" => {
          initialize: :measures_stack, dispose: :measures_stack,
          call: :calls_alone, call_await: :calls_alone, eval: :calls_alone, eval_await: :calls_alone
        },
        "MiniRacer::Snapshot" => { initialize: :measures_stack, warmup!: :measures_stack }
      }
    }.freeze
    # In bytes: more goes into a file.
    MEMORY = 1_048_576
    # libxml2 asks for as much, and {Nokogiri::HTML4::EncodingReader} looks for an encoding in the first piece.
    CHUNK = 4000
    private_constant :MEMORY, :CHUNK

    # An input that has been read. Its end is an exception, if reading has ended so: the library handles it as its own.
    class Input
      def initialize(io)
        @text = StringIO.new("".b)
        copy(io)
        @text.rewind
      end

      # (see IO#read)
      def read(...)
        bytes = @text.read(...)
        bytes.nil? && @error ? raise(@error) : bytes
      end

      private

      def copy(io)
        while (bytes = io.read(CHUNK)) && !bytes.empty?
          move_to_file if @text.is_a?(StringIO) && @text.pos > MEMORY
          ::Fiber.blocking { @text.write(bytes) }
        end
      rescue ClientGone, RequestTimeout, ServerStopping
        raise
      rescue StandardError => error
        raise if io.respond_to?(:encoding_found) && io.encoding_found # Nokogiri's own way to tell it

        @error = error
      end

      def move_to_file
        file = Tempfile.new("fairlead-input", binmode: true)
        file.unlink
        ::Fiber.blocking { file.write(@text.string) }
        @text = file
      end
    end
    private_constant :Input

    class << self
      # Call it once the app is loaded, in a process that serves. May be called again.
      #
      # @return [void]
      def establish
        TABLE.each do |row, classes|
          next if established.include?(row) || Compatibility.resolve(classes.keys.first).nil?

          established << row
          next unless Compatibility.fits?(row)

          classes.each { |name, methods| extend_class(Compatibility.resolve(name), methods) }
        end
      end

      # @api private
      # @return [Object] what a library may read without a wait.
      def read(io) = serving? && io.respond_to?(:read) && !at_hand?(io) ? Input.new(io) : io

      # @api private
      # @return [Object] what the block returns.
      def in_thread(&block)
        return yield unless serving?

        BareThread.start(&block).value
      end

      private

      def established = @established ||= []

      def serving? = ::Fiber.current_scheduler.is_a?(ServingScheduler)

      def extend_class(type, methods)
        methods.each do |method, kind|
          type.prepend(send(kind, method)) if type.method_defined?(method) || type.private_method_defined?(method)
        end
      end

      # @return [Boolean] whether it takes no wait to read from an IO.
      def at_hand?(io)
        io.is_a?(::StringIO) || (io.respond_to?(:to_io) && (file = io.to_io).is_a?(::File) && (file.closed? || file.stat.file?))
      end

      def reads(method)
        ::Module.new { define_method(method) { |io, *arguments| super(Callbacks.read(io), *arguments) } }
      end

      def calls(method)
        ::Module.new { define_method(method) { |*arguments| ::Fiber.blocking { super(*arguments) } } }
      end

      def calls_alone(method)
        ::Module.new do
          define_method(method) do |*arguments, **options|
            (@fairlead_turn ||= ::Monitor.new).synchronize { super(*arguments, **options) }
          end
        end
      end

      def measures_stack(method)
        ::Module.new do
          define_method(method) { |*arguments, **options| Callbacks.in_thread { super(*arguments, **options) } }
          private method if method == :initialize
        end
      end
    end
  end
end
