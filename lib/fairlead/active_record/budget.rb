# frozen_string_literal: true

require "socket"

module Fairlead
  module ActiveRecord
    # A worker's side of `database_connections`: how many connections its pools may open, of those that all workers
    # together may. See {Fairlead::Budget} for the supervisor's.
    #
    # What counts is a connection in a pool, open or not yet. Files are not counted: SQLite has no such bound.
    #
    # Called under the locks of several pools, from any thread; it never waits.
    class Budget
      class << self
        # @return [Budget, nil] of this process; nil if it is not bounded, or if it is the child of a worker.
        def current = (@current if @pid == Process.pid)

        # @param limit [Integer]
        # @param page [SharedPage, nil] where room is given; nil: this process is alone, and has it all.
        # @param socket [UNIXSocket, nil] where the supervisor is told.
        def join(limit, page: nil, slot: 0, socket: nil)
          @pid = Process.pid
          @current = new(limit, page, slot, socket)
          pools.each { |pool| pool.fairlead_lift(limit) } if ActiveRecord.loaded? && Seam.installed?
        end

        # @return [Boolean] whether a database has a bound on its connections.
        def counts?(db_config) = !db_config.adapter.to_s.start_with?("sqlite")

        # @return [Array<ConnectionPool>] of all roles.
        def pools = ::ActiveRecord::Base.connection_handler.connection_pool_list(:all)
      end

      # @return [Integer] of all workers together.
      attr_reader :limit

      def initialize(limit, page, slot, socket)
        @limit = limit
        @page = page
        @slot = slot
        @socket = socket
        @lock = Thread::Mutex.new
        @taken = @freed = @given_back = 0
        @waiting = {}.compare_by_identity # pool => [how many, since when]
        @unsent = []
      end

      # @return [Integer] how many more connections may be opened now.
      def room = [granted - @taken, 0].max

      # @return [Integer, nil] what a connection is known by; nil if there is no room for it.
      def take
        @lock.synchronize do
          next unless room.positive?

          @taken += 1
          show
          @taken
        end
      end

      # A connection has been closed for good, or was never opened after all.
      def free(id)
        @lock.synchronize do
          @freed += 1
          show
          tell("free #{id}")
        end
      end

      # A connection is open.
      #
      # @param io [IO, nil] its socket, if the driver shows it.
      def opened(id, io) = @lock.synchronize { tell("open #{id}", io) }

      # A connection has been closed and will be opened again.
      def shut(id) = @lock.synchronize { tell("shut #{id}") }

      # How many of a pool wait for a connection, and since when.
      #
      # @param since [Float, nil] of the monotonic clock.
      def waiting(pool, count, since)
        @lock.synchronize do
          before = @waiting.any?
          count.zero? ? @waiting.delete(pool) : @waiting[pool] = [count, since]
          next unless @page

          @page.write(@slot, :database_since_us, (@waiting.each_value.map(&:last).min.to_f * 1_000_000).to_i)
          @page.write(@slot, :database_waiting, @waiting.each_value.sum(&:first))
          tell("want") if @waiting.any? && !before
        end
      end

      # @return [Boolean] whether the one who asks shall give up its connection; said once for each.
      def recalled?
        return false unless @page && @given_back < @page.get(@slot, :database_recalled)

        @lock.synchronize { @given_back < @page.get(@slot, :database_recalled) && (@given_back += 1) } ? true : false
      end

      # Others wait: gives up what nobody here uses.
      #
      # @param count [Integer] at most.
      def spare(count)
        while count.positive? && @waiting.empty? && (id = take)
          free(id)
          count -= 1
        end
        Budget.pools.each do |pool|
          count -= pool.fairlead_spare(count) if count.positive? && Budget.counts?(pool.db_config)
        end
      end

      private

      def granted = @page ? @page.get(@slot, :database_granted) : @limit + @freed

      def show
        return unless @page

        @page.write(@slot, :database_open, @taken - @freed)
        @page.write(@slot, :database_taken, @taken)
      end

      # What the supervisor does not take at once is sent with the next message.
      def tell(message, io = nil)
        return unless @socket

        @unsent << [message, io]
        until @unsent.empty?
          words, socket = @unsent.first
          controls = socket ? [Socket::AncillaryData.unix_rights(socket)] : []
          break if @socket.sendmsg_nonblock(words, 0, nil, *controls, exception: false) == :wait_writable

          @unsent.shift
        end
      rescue SystemCallError, IOError
        @unsent.clear # a descriptor that is closed by now, or no supervisor
      end
    end
  end
end
