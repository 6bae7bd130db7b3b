# frozen_string_literal: true

require "socket"
require_relative "../parts"

module Fairlead
  class ConnectionBudget
    # The supervisor's side of one database server: bounds the open connections of all workers together.
    #
    # A worker that wants to open connections writes to the shared page how many of its requests wait and since when, and the
    # supervisor grants it room there. For each connection that it opens, the worker sends a copy of the descriptor. So the
    # supervisor sees when the database has closed its side: later than the worker closes its own, and much later if a worker
    # is killed whose query still runs. Only then is there room again.
    #
    # The messages, one a packet: `want` (a request waits), `open ID` (with the descriptor, if the driver shows it),
    # `shut ID` (closed, or about to be; it will be opened again), `free ID` (closed for good).
    class Allocator
      # Seconds between two distributions while requests wait.
      TICK = 0.01
      # Seconds after which a worker is asked again for idle connections: without waiting requests, and with some. The latter
      # may have idle ones for another database.
      ASK_AGAIN = { idle: 0.02, waiting: 0.25 }.freeze
      # Seconds for which requests wait before another busy worker is asked for its idle connections: closing one and opening
      # another takes longer than waiting for most queries.
      PATIENCE = 0.1
      # Seconds for which a connection without a known descriptor counts: after its worker has closed it, and after its worker
      # has died.
      UNSEEN = { closed: 0.1, dead: 5.0 }.freeze
      # Bytes in which descriptors and packets are read.
      PIECE = 16_384
      private_constant :TICK, :ASK_AGAIN, :PATIENCE, :UNSEEN, :PIECE

      # A worker, as the supervisor knows it.
      Member = Struct.new(:socket, :granted, :freed, :recalled, :owed, :connections, :ask_at) do
        def held = granted - freed
      end
      private_constant :Member

      # @param budget [Integer]
      # @param page [SharedPage]
      def initialize(budget, page)
        @budget = budget
        @page = page
        @elsewhere = @lent = 0
        @members = {} # slot => Member
        @closing = {}.compare_by_identity # Socket, or Object where there is none => until when it counts at most
        @shut = {}.compare_by_identity # Socket of a connection that will be opened again => true
        @wanted = false
        @lacking = 0 # requests for which there was none
      end

      # @return [UNIXSocket] for the worker that takes this slot.
      def admit(slot)
        ours, theirs = PacketSocket.pair
        @members[slot] = Member.new(ours, 0, 0, 0, 0, {}, 0.0)
        theirs
      end

      # The worker of this slot has ended. Its open connections count until the database has noticed.
      def remove(slot)
        member = @members.delete(slot) or return
        receive(member)
        member.connections.each_value { |io| io.is_a?(Socket) ? watch_end(io) : count_for(UNSEEN[:dead]) }
        # Perhaps it was just connecting.
        (member.held - member.connections.size).times { count_for(UNSEEN[:dead]) }
        member.socket.close
      end

      # In a worker: closes what belongs to the supervisor.
      def close
        @members.each_value do |member|
          member.socket.close
          member.connections.each_value { |io| io.close if io.is_a?(Socket) }
        end
        sockets.each(&:close)
      end

      # @return [Array<IO>] to wait for until they are readable.
      def ios = @members.each_value.map(&:socket) + sockets

      # @return [Float, nil] when to call {#update}, if nothing is readable before.
      def deadline(now)
        times = @closing.each_value.to_a.compact
        times << (now + TICK) if @wanted
        times.min
      end

      # @return [Integer] connections that workers hold, or that are not closed yet.
      def used = @members.each_value.sum(&:held) + @closing.size

      # How many of the connections other supervisors retain.
      attr_writer :elsewhere

      # New code needs so many in all, and gets up to half of the budget, as connections come back.
      def lend(count)
        lent = [count, @budget - (@budget / 2)].min
        return if lent <= @lent

        @lent = lent
        @wanted = true
      end

      # New code needs none any more.
      def reclaim = @lent = 0

      # There may be more connections to distribute than before, or fewer.
      def recheck = @wanted = true

      # New code serves, and gets what is not needed here. One connection stays as long as there is a worker, which may have
      # long-lived responses.
      #
      # @param busy [Integer] requests that still run here: each of them may need one.
      def lend_all_but(busy)
        @lent = [@lent, @budget - @elsewhere - [busy, @members.empty? ? 0 : 1].max].max
        @wanted = true
      end

      # @return [Integer] connections that no other supervisor may use.
      def retained = [limit, used].max

      # @return [Integer] how many its workers could use, where other supervisors retain some of them; else 0.
      def requested = @lacking.positive? && @elsewhere.positive? ? used + @lacking : 0

      # Reads what workers have sent, notices connections that have ended, and distributes what is free.
      #
      # @param now [Float]
      # @yieldparam slot [Integer] a worker that should give back idle connections,
      # @yieldparam count [Integer] and how many.
      def update(now, &ask)
        @members.each_value { |member| receive(member) }
        notice_ends(now)
        distribute(now, &ask) if @wanted
      end

      private

      def sockets = @closing.each_key.grep(Socket) + @shut.keys

      def receive(member)
        loop do
          packet, _, _, *controls = member.socket.recvmsg_nonblock(PIECE, 0, PIECE, scm_rights: true, exception: false)
          return if packet.nil? || packet == :wait_readable || packet.empty?

          handle(member, packet, controls.flat_map { |control| control.unix_rights || [] }.first)
        end
      rescue SystemCallError, IOError
        nil
      end

      def handle(member, packet, descriptor)
        word, id = packet.split
        case word
        when "want" then @wanted = true
        when "open" then open(member, id, descriptor)
        when "shut" then shut(member.connections[id])
        when "free" then free(member, id)
        end
      end

      def open(member, id, descriptor)
        before = member.connections[id]
        end_side(before)
        @shut.delete(before)
        before.close if before.is_a?(Socket)
        descriptor&.autoclose = false
        member.connections[id] = descriptor ? Socket.for_fd(descriptor.fileno) : true
      end

      def free(member, id)
        member.freed += 1
        member.owed -= 1 if member.owed.positive?
        io = member.connections.delete(id) or return
        io.is_a?(Socket) ? watch_end(io) : count_for(UNSEEN[:closed])
      end

      # Its room stays taken. The copy of its descriptor is closed once the database has closed its side: a copy keeps waking
      # a selector of the worker that has not forgotten the original in time.
      def shut(io)
        return if !io.is_a?(Socket) || io.closed?

        end_side(io)
        @shut[io] = true
      end

      def watch_end(io)
        @shut.delete(io)
        return if io.closed?

        end_side(io)
        @closing[io] = nil
      end

      # The worker may not have said good-bye.
      def end_side(io)
        io.shutdown(:WR) if io.is_a?(Socket) && !io.closed?
      rescue SystemCallError
        nil # it has ended already
      end

      def count_for(seconds)
        @closing[Object.new] = Clock.now + seconds
      end

      def notice_ends(now)
        @closing.delete_if { |io, deadline| deadline ? deadline <= now : ended?(io) }
        @shut.delete_if { |io, _| ended?(io) }
      end

      def ended?(io)
        loop do
          read = io.read_nonblock(PIECE, exception: false)
          return false if read == :wait_readable
          break if read.nil?
        end
        io.close
        true
      rescue SystemCallError
        io.close
        true
      end

      # A budget of one may be in use by two supervisors until one of them has ended: with none, nothing could be served.
      def limit = [@budget - @elsewhere - @lent, @budget == 1 ? 1 : 0].max

      def distribute(now, &)
        demands = self.demands
        excess = [used - limit, 0].max
        # Also while all waiting requests have been given room: workers do not report further ones.
        @wanted = excess.positive? || @members.each_key.any? { |slot| @page.get(slot, :database_waiting).positive? }
        grants = Allocation.grants(demands, limit, limit - used)
        grants.each { |slot, count| grant(slot, count) }
        @lacking = demands.sum(&:waiting) - grants.values.sum
        left = [[@lacking, demands.sum { |demand| in_need?(demand, now) ? Allocation.at_once(demand) : 0 }].min, excess].max
        return unless left.positive?

        Allocation.recalls(demands, limit, @closing.size).each { |slot, count| recall(slot, count) }
        demands.each { |demand| ask(demand, left, now, &) }
      end

      def in_need?(demand, now)
        demand.waiting.positive? && (demand.held.zero? || demand.since / 1e6 < now - PATIENCE)
      end

      # Also a worker that owes some: what it owes may be idle by now.
      def ask(demand, count, now)
        member = @members[demand.slot]
        return if demand.held.zero? || member.ask_at > now

        member.ask_at = now + ASK_AGAIN[demand.waiting.zero? ? :idle : :waiting]
        yield demand.slot, demand.owed.positive? ? [count, demand.owed].min : count
      end

      def demands
        @members.map do |slot, member|
          coming = member.granted - @page.get(slot, :database_taken)
          Allocation::Demand.new(
            slot:, held: member.held, waiting: [@page.get(slot, :database_waiting) - coming, 0].max,
            since: @page.get(slot, :database_since_us), connecting: member.held - member.connections.size, owed: member.owed
          )
        end
      end

      def grant(slot, count)
        member = @members[slot]
        member.granted += count
        @page.write(slot, :database_granted, member.granted)
      end

      def recall(slot, count)
        member = @members[slot]
        member.owed += count
        member.recalled += count
        @page.write(slot, :database_recalled, member.recalled)
      end
    end
  end
end
