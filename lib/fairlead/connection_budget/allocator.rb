# frozen_string_literal: true

require "socket"
require_relative "../parts"

module Fairlead
  # The supervisor's side of `database_connections` for one database server: it bounds the open connections of all workers
  # together. See {Budgets}.
  #
  # A worker that wants to open a connection shows in the shared page how many of its requests wait and since when, and
  # is given room there, one connection at a time. Of each connection that it opens it sends a copy of the
  # descriptor. So the supervisor sees when the database has closed its side, which is later than the worker closes its
  # own; and much later, if a worker is killed whose query still runs. Only then is there room again.
  #
  # The messages, one a packet: `want` (a request waits), `open ID` (with the descriptor, if the driver shows it),
  # `shut ID` (closed, or about to be; it will be opened again), `free ID` (closed for good).
  class Budget; end
end

require_relative "allocation"

module Fairlead
  class Budget
    # Seconds between two looks at those who wait.
    TICK = 0.01
    # Seconds after which a worker is asked again for idle connections: one that lets nobody wait, and one that does, but
    # may have some for another database.
    AGAIN = { rich: 0.02, poor: 0.25 }.freeze
    # For how many seconds requests wait before another worker, whose requests may be back in a moment, is asked for its idle
    # connections: to close one and open another takes longer than to wait for most queries.
    PATIENCE = 0.1
    # For how long, in seconds, a connection whose descriptor is not known counts: once its worker has closed it, and
    # once its worker has died.
    UNSEEN = { closed: 0.1, dead: 5.0 }.freeze
    # Descriptors and packets are read in pieces of this size, in bytes.
    PIECE = 16_384
    private_constant :TICK, :AGAIN, :PATIENCE, :UNSEEN, :PIECE

    # A worker, as the supervisor knows it.
    Member = Struct.new(:socket, :granted, :freed, :recalled, :owed, :connections, :ask_at) do
      def held = granted - freed
    end
    private_constant :Member

    # @param most [Integer]
    # @param page [SharedPage]
    def initialize(most, page)
      @most = most
      @page = page
      @elsewhere = @lent = 0
      @members = {} # slot => Member
      @closing = {}.compare_by_identity # Socket, or Object where there is none => until when at most
      @shut = {}.compare_by_identity # Socket of a connection that will be opened again => true
      @wanted = false
      @lacking = 0 # how many wait for whom there was none
    end

    # @return [UNIXSocket] what the worker that comes to this slot gets.
    def admit(slot)
      ours, theirs = PacketSocket.pair
      @members[slot] = Member.new(ours, 0, 0, 0, 0, {}, 0.0)
      theirs
    end

    # The worker of this slot has ended. What it had open counts until the database has noticed.
    def leave(slot)
      member = @members.delete(slot) or return
      receive(member)
      member.connections.each_value { |io| io.is_a?(Socket) ? watch_end(io) : count_for(UNSEEN[:dead]) }
      # Perhaps it was just connecting.
      (member.held - member.connections.size).times { count_for(UNSEEN[:dead]) }
      member.socket.close
    end

    # In a worker: all this is the supervisor's.
    def close
      @members.each_value do |member|
        member.socket.close
        member.connections.each_value { |io| io.close if io.is_a?(Socket) }
      end
      sockets.each(&:close)
    end

    # @return [Array<IO>] what there is to be noticed.
    def ios = @members.each_value.map(&:socket) + sockets

    # @return [Float, nil] when {#attend} should be called, if nothing is readable before.
    def deadline(now)
      times = @closing.each_value.to_a.compact
      times << (now + TICK) if @wanted
      times.min
    end

    # @return [Integer] how many of the connections are in somebody's hands, or not closed yet.
    def used = @members.each_value.sum(&:held) + @closing.size

    # Set by whoever knows the other generations of the server: how many of the connections are theirs.
    attr_writer :elsewhere

    # New code needs so many in all: it gets up to half of them. What is used is given up as it comes back.
    def lend(count)
      lent = [count, @most - (@most / 2)].min
      return if lent <= @lent

      @lent = lent
      @wanted = true
    end

    # It needs none any more.
    def take_back = @lent = 0

    # There may be more of them than before, or less.
    def look = @wanted = true

    # New code serves, and gets what is not needed here any more. As long as there is a worker, one stays: it may have
    # long-lived responses.
    #
    # @param busy [Integer] requests that run here yet: each of them may need one.
    def give_up_all_but(busy)
      @lent = [@lent, @most - @elsewhere - [busy, @members.empty? ? 0 : 1].max].max
      @wanted = true
    end

    # @return [Integer] what no other generation may have.
    def kept = [limit, used].max

    # @return [Integer] what its workers could use, where they may not because of other generations; else 0.
    def wish = @lacking.positive? && @elsewhere.positive? ? used + @lacking : 0

    # Takes in what has happened, and gives out what there is.
    #
    # @param now [Float]
    # @yieldparam slot [Integer] a worker that should give back idle connections,
    # @yieldparam count [Integer] and how many.
    def attend(now, &spare)
      @members.each_value { |member| receive(member) }
      notice_ends(now)
      distribute(now, &spare) if @wanted
    end

    private

    def sockets = @closing.each_key.grep(Socket) + @shut.keys

    def receive(member)
      loop do
        packet, _, _, *controls = member.socket.recvmsg_nonblock(PIECE, 0, PIECE, scm_rights: true, exception: false)
        return if packet.nil? || packet == :wait_readable || packet.empty?

        note(member, packet, controls.flat_map { |control| control.unix_rights || [] }.first)
      end
    rescue SystemCallError, IOError
      nil
    end

    def note(member, packet, descriptor)
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

    # Its room stays taken. The copy of its descriptor is closed once the database has closed its side: as long as there
    # is one, a selector of the worker that has not forgotten the original in time is woken by it, again and again.
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

    # Also if the worker has not said good-bye.
    def end_side(io)
      io.shutdown(:WR) if io.is_a?(Socket) && !io.closed?
    rescue SystemCallError
      nil # it has ended already
    end

    def count_for(seconds)
      @closing[Object.new] = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
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

    # With one at least: who has all to itself once the others have ended may serve until then.
    def limit = [@most - @elsewhere - @lent, @most == 1 ? 1 : 0].max

    def distribute(now, &)
      claims = self.claims
      too_many = [used - limit, 0].max
      # Also while all who wait have been given room: more may come, and are not told of.
      @wanted = too_many.positive? || @members.each_key.any? { |slot| @page.get(slot, :database_waiting).positive? }
      grants = Shares.grants(claims, limit, limit - used)
      grants.each { |slot, count| grant(slot, count) }
      @lacking = claims.sum(&:waiting) - grants.values.sum
      left = [[@lacking, claims.sum { |claim| in_need?(claim, now) ? Shares.at_once(claim) : 0 }].min, too_many].max
      return unless left.positive?

      Shares.recalls(claims, limit, @closing.size).each { |slot, count| recall(slot, count) }
      claims.each { |claim| ask(claim, left, now, &) }
    end

    def in_need?(claim, now)
      claim.waiting.positive? && (claim.held.zero? || claim.since / 1e6 < now - PATIENCE)
    end

    # Also one that owes some: what it gives back as it comes back may have been idle before.
    def ask(claim, count, now)
      member = @members[claim.slot]
      return if claim.held.zero? || member.ask_at > now

      member.ask_at = now + AGAIN[claim.waiting.zero? ? :rich : :poor]
      yield claim.slot, claim.owed.positive? ? [count, claim.owed].min : count
    end

    def claims
      @members.map do |slot, member|
        coming = member.granted - @page.get(slot, :database_taken)
        Shares::Claim.new(
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
