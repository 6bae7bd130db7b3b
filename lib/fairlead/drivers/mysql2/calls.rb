# frozen_string_literal: true

module Fairlead
  module Drivers
    module Mysql2
      # Calls that block are run by another thread. When the fiber that waits for one is interrupted, the server is told
      # to end the query: the driver must have returned before anybody uses the connection again.
      module Calls
        def self.included(driver)
          driver.extend(ClassMethods)
        end

        # Declares what blocks.
        module ClassMethods
          def offloads(*names)
            names.each do |name|
              define_method(name) do |*arguments, **options|
                Drivers.fibers? ? offloaded { super(*arguments, **options) } : super(*arguments, **options)
              end
            end
          end
        end

        private

        # Of a client; a statement has another.
        def fairlead_client = self

        def offloaded
          begun = false
          ended = ::Thread::Queue.new # whether the connection is clean then
          Fairlead.offload do
            begun = true
            clean = false
            yield.tap { clean = true }
          rescue ::Mysql2::Error => error
            clean = error.error_number == QUERY_INTERRUPTED
            raise
          ensure
            ended.push(clean)
          end
        rescue ::Mysql2::Error
          raise
        rescue Exception # Async::Cancel and Timeout::ExitException among them
          fairlead_client&.__send__(:end_query) { ended.pop } if begun && ended.empty?
          raise
        end
      end

      # What a client does about a query that nobody waits for any more.
      module Interruption
        private

        # Tells the server to end it, and has the block take what the server says to that. Without success the connection
        # is of no use to anybody, and closed.
        #
        # @yieldreturn [Boolean] whether the connection is clean
        def end_query
          clean = Drivers.clean_up do
            options = @query_options.merge(@fairlead_password)
            SideConnection.end_query(options, thread_id) { Interruption.connect(options) } && yield
          end
        ensure
          give_up unless clean
        end

        # Not closed: another thread may be using it. But nobody reads from it any more.
        def give_up
          answer_socket.shutdown unless closed?
        rescue SystemCallError, ::Mysql2::Error
          nil
        end

        # @return [Array(Mysql2::Client, Integer)]
        def self.connect(options)
          unwanted = %i[reconnect init_command async stream database]
          client = ::Mysql2::Client.new(
            # A child of this process that forgets its copy shall not say good-bye for it.
            options.except(*unwanted).merge(connect_timeout: PATIENCE, read_timeout: PATIENCE, automatic_close: false)
          )
          [client, client.thread_id]
        end
      end
    end
  end
end
