# frozen_string_literal: true

require "json"
require "socket"
require_relative "offences"

module Fairlead
  module Hostile
    # For this process and those that it starts: beyond the hard limit, where we may.
    def self.raise_descriptor_limit
      _, hard = Process.getrlimit(:NOFILE)
      most = [hard, 65_536].max
      Process.setrlimit(:NOFILE, most, most)
    rescue Errno::EPERM
      Process.setrlimit(:NOFILE, hard, hard)
    end

    # So many offenders of each kind, in a process of their own, until they are told to stop.
    class Attack
      # Seconds from one tick of an offender to its next; they do not all have it at the same moment.
      TICK = 0.1
      PHASES = 10
      # Connections opened between two looks at anything else: a backlog must not run over.
      AT_ONCE = 200
      ESTABLISHED = 1 # of the kernel, for TCP_INFO
      private_constant :TICK, :PHASES, :AT_ONCE, :ESTABLISHED

      # What has become of the offenders of one offence: how many there were, how many are gone, after how many seconds
      # the last of them, for how many seconds the oldest of the others has been there, and how often each status was answered.
      Outcome = Struct.new(:name, :opened, :gone, :longest, :oldest, :answers, keyword_init: true)

      # @param offences [Array<Offence>]
      # @param each [Integer] offenders of each
      # @param again [Boolean] whether another one comes whenever one is gone
      # @param over [Numeric] seconds until all are there: who comes together is gone together, and comes together again
      def initialize(port, offences, each:, again: false, over: 0)
        @port = port
        @offences = offences
        @each = each
        @again = again
        @over = over
      end

      # @yield while it goes on
      # @return [Hash{String => Outcome}] by the offence's name
      def during
        ready, told = IO.pipe
        stop, stopper = IO.pipe
        results, writer = IO.pipe
        pid = fork_attacker([ready, stopper, results]) { attack(told, stop, writer) }
        [told, stop, writer].each(&:close)
        ready.read # until all are there
        yield
        stopper.close
        report = results.read
        raise "the attacker has failed" if report.empty?

        JSON.parse(report, symbolize_names: true).to_h { |outcome| [outcome[:name], Outcome.new(**outcome)] }
      ensure
        [ready, stopper, results].each { |io| io.close unless io.closed? } # it ends now, whatever has happened here
        Process.wait(pid) if pid
      end

      private

      # Nothing of the test's own is run in it, whatever happens.
      def fork_attacker(others)
        fork do
          others.each(&:close)
          Process.setpriority(Process::PRIO_PROCESS, 0, 19) # it is elsewhere, as a rule
          Hostile.raise_descriptor_limit
          yield
        rescue Exception => error
          warn "the attacker has failed: #{error.full_message}"
        ensure
          exit!
        end
      end

      def attack(told, stop, writer)
        @outcomes = @offences.to_h { |offence| [offence, Outcome.new(name: offence.name, opened: 0, gone: 0, longest: 0, oldest: 0, answers: {})] }
        @phases = Array.new(PHASES) { {} }
        @ticked = now
        open_all
        told.close
        tick until stop.wait_readable(0)
        @ends = true
        look
        everybody.each { |_, (offence, _, since)| @outcomes[offence].oldest = [@outcomes[offence].oldest, now - since].max }
        writer.write(JSON.generate(@outcomes.values.map(&:to_h)))
      end

      def open_all
        pause = @over / (@offences.size * @each).to_f
        due = now
        @offences.product([*0...@each]).each.with_index(1) do |(offence, number), count|
          due += pause
          tick while due > now
          open(offence, number, @phases[count % PHASES])
          tick if (count % AT_ONCE).zero?
        end
      end

      def open(offence, number, phase)
        socket = Socket.new(:INET, :STREAM)
        socket.setsockopt(:SOCKET, :RCVBUF, 4096) unless offence.reads
        socket.connect(Addrinfo.tcp("127.0.0.1", @port))
        @outcomes[offence].opened += 1
        phase[socket] = [offence, Offender.new(socket, number), now, phase]
      end

      def everybody = @phases.flat_map(&:to_a)

      # Those whose turn it is.
      def tick
        sleep([@ticked + (TICK / PHASES) - now, 0].max)
        @ticked = now
        @phases.rotate!.last.to_a.each do |socket, (offence, offender, *since)|
          offender.tick(offence)
          socket.closed? ? is_gone(socket, offence, offender, *since) : hear(socket, offence, offender, *since)
        rescue Errno::EPIPE, Errno::ECONNRESET, Errno::ENOTCONN
          is_gone(socket, offence, offender, *since)
        end
      end

      def look
        everybody.each do |socket, about|
          hear(socket, *about)
        rescue SystemCallError
          is_gone(socket, *about)
        end
      end

      def hear(socket, offence, offender, *since)
        return (is_gone(socket, offence, offender, *since) if broken?(socket)) unless offence.reads

        while (bytes = offender.read) && bytes != :wait_readable
          note(offence, bytes)
        end
        is_gone(socket, offence, offender, *since) unless bytes
      end

      def note(offence, bytes)
        answers = @outcomes[offence].answers
        bytes.scan(%r{HTTP/1\.1 (\d{3})}n) { |code,| answers[code] = answers[code].to_i + 1 }
      end

      # Who does not read hears of a reset all the same.
      def broken?(socket) = socket.getsockopt(:TCP, :INFO).data.unpack1("C") != ESTABLISHED

      def is_gone(socket, offence, offender, since, phase)
        phase.delete(socket)
        outcome = @outcomes[offence]
        outcome.gone += 1
        outcome.longest = [outcome.longest, now - since].max
        socket.close unless socket.closed?
        open(offence, offender.number, phase) if (offence.again || @again) && !@ends
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
