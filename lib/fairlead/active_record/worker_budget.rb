# frozen_string_literal: true

require "socket"
require "zlib"

module Fairlead
  module ActiveRecord
    # A worker's side of `database_connections`: how many connections to one database server its pools may open, of the number
    # that all workers share. {ConnectionBudget::Allocator} is the supervisor's side.
    #
    # Each connection in a pool counts, open or not yet. Those to files do not: SQLite has no such bound.
    #
    # Called under the locks of several pools, from any thread. Nothing waits under its own lock; while another thread holds
    # it, the calling thread waits, not its fiber, which could be interrupted there.
    class WorkerBudget
      # Default ports.
      PORTS = { "postgresql" => 5432, "postgis" => 5432, "mysql2" => 3306, "trilogy" => 3306 }.freeze
      private_constant :PORTS

      class << self
        # @return [Integer, nil] for each database server; nil if this process is not bounded, or is the child of a worker.
        def limit = (@limit if @pid == Process.pid)

        # @param config [ActiveRecord::DatabaseConfigurations::DatabaseConfig]
        # @return [WorkerBudget, nil] of its server; nil if that is not bounded.
        def of(config)
          return unless limit && counts?(config)

          exclusively do
            number = (@numbers[server_of(config)] ||= number_of(server_of(config)))
            @budgets[number] || new(limit, @share&.pages&.at(number), @slot, @share&.sockets&.at(number)).tap do |budget|
              @budgets = { **@budgets, number => budget } # another thread may iterate over it
            end
          end
        end

        # @param number [Integer] of a server, as the supervisor knows it.
        # @return [WorkerBudget, nil]
        def numbered(number) = (@budgets[number] if limit)

        # @param limit [Integer]
        # @param share [ConnectionBudget::Share, nil] connects it to the supervisor; nil: this process is alone.
        # @param page [SharedPage, nil] where the totals are published.
        # @raise [ConfigurationError] see {check}.
        def set_up(limit, share: nil, page: nil, slot: 0)
          check(limit)
          @limit, @share, @page, @slot = limit, share, page, slot
          @lock = Thread::Mutex.new
          @numbers = {}
          @budgets = {}
          @pid = Process.pid
          ActiveRecord.pools.each { |pool| pool.fairlead_raise_limit(limit) } if ActiveRecord.loaded? && PoolPatch.installed?
        end

        # Publishes the total of all servers.
        def publish = @page&.write(@slot, :database_open, @budgets.each_value.sum(&:open))

        # @return [Boolean] whether a database has a bound on its connections.
        def counts?(db_config) = !db_config.adapter.to_s.start_with?("sqlite")

        # @return [String] what tells one database server from another.
        def server_of(config)
          hash = config.configuration_hash
          [hash[:host] || hash[:socket] || "this machine", hash[:port] || PORTS.fetch(config.adapter, config.adapter)].join(":")
        end

        # @raise [ConfigurationError] if the app has been loaded, and nothing in it would keep to this limit.
        def check(limit)
          return unless defined?(::ActiveRecord.gem_version) && ActiveRecord.own_pools?

          newer = ", which is newer than what was tested" if Compatibility::TABLE[:pool].newer?
          raise ConfigurationError,
                "#{Fairlead.configuration.source(:database_connections)}: `database_connections #{limit}` needs " \
                "ActiveRecord #{Compatibility::TABLE[:pool].known}, and the app has #{::ActiveRecord.gem_version}#{newer}. " \
                "Remove it: each worker then opens up to as many as `pool` in config/database.yml says."
        end

        private

        def exclusively(&) = ::Fiber.blocking { @lock.synchronize(&) }

        def number_of(server) = @share ? @share.pages.first.database(Zlib.crc32(server) + 1) : @numbers.size
      end

      # @return [Integer] of all workers together.
      attr_reader :limit

      def initialize(limit, page, slot, socket)
        @pid = Process.pid
        @limit = limit
        @page = page
        @slot = slot
        @socket = socket
        @lock = Thread::Mutex.new
        @taken = @freed = @given_back = 0
        @waiting = {}.compare_by_identity # pool => [how many, since when]
        @unsent = []
      end

      # @return [Boolean] whether it belongs to this process.
      def own? = @pid == Process.pid

      # @return [Integer] connections, or room for them, that this process has.
      def open = @taken - @freed

      # @return [Integer] how many more connections may be opened now.
      def room = [granted - @taken, 0].max

      # @return [Integer, nil] the number of a new connection; nil if there is no room for it.
      def take
        exclusively do
          next unless room.positive?

          @taken += 1
          publish
          @taken
        end
      end

      # A connection has been closed for good, or was never opened after all.
      def free(id)
        exclusively do
          @freed += 1
          publish
          send_message("free #{id}")
        end
      end

      # A connection is open.
      #
      # @param io [IO, nil] its socket, if the driver shows it.
      def opened(id, io) = exclusively { send_message("open #{id}", io) }

      # A connection has been closed and will be opened again.
      def shut(id) = exclusively { send_message("shut #{id}") }

      # @param count [Integer] how many wait for a connection of the pool.
      # @param since [Float, nil] of the monotonic clock: when the first of them came.
      def report_waiters(pool, count, since)
        exclusively do
          before = @waiting.any?
          count.zero? ? @waiting.delete(pool) : @waiting[pool] = [count, since]
          next unless @page

          @page.write(@slot, :database_since_us, (@waiting.each_value.map(&:last).min.to_f * 1_000_000).to_i)
          @page.write(@slot, :database_waiting, @waiting.each_value.sum(&:first))
          send_message("want") if @waiting.any? && !before
        end
      end

      # @return [Boolean] whether the caller has to give up its connection; true once for each that the supervisor recalls.
      def recalled?
        return false unless @given_back < recalled

        exclusively { @given_back < recalled && (@given_back += 1) } ? true : false
      end

      # Other workers wait: gives up room that is not used, and idle connections. As many fewer have to be given up at check-in.
      #
      # @param count [Integer] at most.
      def give_up_idle(count)
        left = count
        while left.positive? && @waiting.empty? && (id = take)
          free(id)
          left -= 1
        end
        ActiveRecord.pools.each do |pool|
          left -= pool.fairlead_close_idle(left) if left.positive? && pool.fairlead_budget.equal?(self)
        end
        exclusively { @given_back = [@given_back + count - left, recalled].min }
      end

      private

      def exclusively(&) = ::Fiber.blocking { @lock.synchronize(&) }

      def recalled = @page ? @page.get(@slot, :database_recalled) : 0

      def granted = @page ? @page.get(@slot, :database_granted) : @limit + @freed

      def publish
        WorkerBudget.publish
        @page&.write(@slot, :database_taken, @taken)
      end

      # What the socket does not take at once is sent with the next message.
      def send_message(message, io = nil)
        return unless @socket

        @unsent << [message, io]
        @unsent.shift until @unsent.empty? || try_to_send(*@unsent.first) == :wait_writable
      rescue SystemCallError, IOError
        @unsent.clear # there is no supervisor
      end

      # A descriptor that is closed by now, or one too many on its way, must not cost the message.
      def try_to_send(message, io)
        controls = io ? [Socket::AncillaryData.unix_rights(io)] : []
        @socket.sendmsg_nonblock(message, 0, nil, *controls, exception: false)
      rescue SystemCallError, IOError
        io ? try_to_send(message, nil) : raise
      end
    end
  end
end
