# frozen_string_literal: true

# Makes database drivers wait as fibers do, and ends queries on the server that nobody waits for.
# Called by integrations and active_record.
# Calls fiber_safety, pool and serving (Offload).

require "async"
require "socket"
require "timeout"
require_relative "parts"
require_relative "fiber_safety/uninterruptible"
require_relative "fiber_safety/request_times"

module Fairlead
  # Makes database drivers wait the way fibers do where they do not by themselves, and has the database end queries for which
  # nobody waits any more. Without a fiber scheduler all stays as it is.
  #
  # Each driver has a file in lib/fairlead/drivers. It is loaded after the driver, in a process that serves, and prepends
  # modules to the driver's classes.
  module Drivers
    # Seconds that the clean-up after an interrupted query may take, before the connection is given up.
    PATIENCE = 2
    # The constant of each driver, its file, ActiveRecord's hook for when it is loaded later, and its row of {Compatibility}.
    KNOWN = {
      "PG" => ["fairlead/drivers/postgresql", :active_record_postgresqladapter, :pg],
      "Mysql2" => ["fairlead/drivers/mysql2", :active_record_mysql2adapter, :mysql2],
      "Trilogy" => ["fairlead/drivers/trilogy", :active_record_trilogyadapter, :trilogy],
      "SQLite3" => ["fairlead/drivers/sqlite3", :active_record_sqlite3adapter, :sqlite3]
    }.freeze
    private_constant :KNOWN

    # Of a driver's connection. Tells errors of the driver, by which a call has ended, from interruptions of the call: a
    # deadline, a client that has gone, Timeout, Task#cancel.
    module Interruptible
      private

      def interruptible(&)
        RequestTimes.during(RequestTimes::DATABASE, &)
      rescue Exception => error # Async::Cancel and Timeout::ExitException among them
        driver_errors.any? { |type| type === error } ? call_failed(error) : call_interrupted
        raise
      end

      # @return [Array<Class>]
      def driver_errors = raise(NotImplementedError)

      def call_failed(_) = nil

      # Has the server end the query, and closes the connection: nobody knows whether the statement was done.
      def call_interrupted = raise(NotImplementedError)
    end

    class << self
      # To be called before serving, once the app is loaded. May be called again.
      #
      # @return [void]
      def establish
        KNOWN.each do |name, (file, hook, row)|
          # A constant that is still to be autoloaded is not loaded here.
          next install(file, row) if Object.const_defined?(name) && !Object.autoload?(name)

          await(hook) { install(file, row) }
        end
      end

      # @return [Boolean] whether waiting here would hold up other fibers.
      def fibers? = !Fiber.current_scheduler.nil?

      # Runs the block to its end, in another thread unless all are busy: for what takes milliseconds at most.
      def compute(&) = fibers? && Offload.free? ? Uninterruptible.run { Fairlead.offload(&) } : yield

      # Ends an interrupted statement on the server, in the statement's fiber. Nothing interrupts the block; it ends
      # after {PATIENCE} seconds at the latest. The app gets the first interruption, and not what the block raises.
      #
      # @return [Object, nil] what the block returns; nil if it failed.
      def clean_up(&)
        Uninterruptible.run do
          scheduler = Fiber.current_scheduler
          scheduler.respond_to?(:with_timeout) ? scheduler.with_timeout(PATIENCE, &) : ::Timeout.timeout(PATIENCE, &)
        rescue StandardError
          nil
        end
      end

      # @return [Boolean] whether an error comes from outside: a deadline, the client or the server that goes, Timeout, Task#cancel.
      def interruption?(error)
        case error
        when RequestTimeout, ClientGone, ServerStopping, ::Timeout::Error, ::Async::TimeoutError then true
        else !error.is_a?(StandardError)
        end
      end

      # @param sql [Object] whatever an app gives to a driver, in any encoding.
      # @return [Boolean]
      def sql?(sql, pattern)
        return false unless sql.is_a?(String)

        pattern.match?(sql.valid_encoding? && sql.encoding.ascii_compatible? ? sql : sql.b)
      end

      # @param socket [BasicSocket] of a connection that waits for nothing.
      # @return [Boolean, nil] true: it is closed; nil: something has come unasked.
      def lost?(socket)
        case socket.recv_nonblock(1, ::Socket::MSG_PEEK, exception: false)
        when :wait_readable then false
        when nil, "" then true
        end
      rescue SystemCallError, IOError
        true
      end

      private

      def install(file, row) = (require file if Compatibility.fits?(row))

      def await(hook, &install)
        return if (@awaited ||= {})[hook] || !defined?(::ActiveSupport.on_load)

        @awaited[hook] = true
        ::ActiveSupport.on_load(hook) { install.call }
      end
    end
  end
end
