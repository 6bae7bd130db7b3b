# frozen_string_literal: true

module Fairlead
  class Mixture
    # What became of each request: as its client saw it, and as the app has written it down. For any thread.
    class Ledger
      # @!attribute outcome [Symbol] :answered; :wrong, with another answer than its own; :lost, when its connection
      #   ended; :silent, when nothing came for long; :left, when its client went.
      # @!attribute process [Integer, nil] that has answered.
      # @!attribute at [Float] when its outcome was known, monotonic.
      # @!attribute port [Integer, nil] the client's, of the connection that was lost.
      # @!attribute since [Float, nil] when that was opened, at the latest.
      # @!attribute followed [Boolean, nil] whether others had been sent behind it.
      Entry = Struct.new(:number, :outcome, :path, :at, :process, :detail, :port, :since, :followed, keyword_init: true)
      # @!attribute ports [Array<Integer>] of the clients whose connections it had.
      Kill = Struct.new(:pid, :ports, :at)
      private_constant :Kill

      def initialize
        @lock = Mutex.new
        @last = 0
        @entries = []
        @kills = []
        @complaints = []
      end

      # @return [Integer] the number of a new request.
      def next_number = @lock.synchronize { @last += 1 }

      def note(number, outcome, path, **details)
        @lock.synchronize { @entries << Entry.new(number:, outcome:, path:, at: now, **details) }
      end

      # Something was wrong that is of no request.
      def complain(text) = @lock.synchronize { @complaints << text }

      # A process stands still, with these connections, and is killed next.
      def killed(pid, ports) = @lock.synchronize { @kills << Kill.new(pid, ports, now) }

      # @return [Hash{Symbol => Integer}] how many requests had each outcome.
      def counts = @lock.synchronize { @entries.map(&:outcome).tally }

      # @return [Integer]
      def kills = @lock.synchronize { @kills.size }

      # @return [String] "1200 answered, 30 left, 12 lost, 9 workers killed"
      def to_s = "#{counts.map { |outcome, count| "#{count} #{outcome}" }.join(", ")}, #{kills} workers killed"

      # @param runs [Array<String>] the lines that the app has written.
      # @return [Array<String>] all that should not have been.
      def faults(runs)
        begun = runs_by_number(runs, "begins")
        ended = runs_by_number(runs, "ends")
        twice = begun.filter_map { |number, pids| "#{number} ran #{pids.size} times, in #{pids.join(", ")}" if pids.size > 1 }
        @complaints + twice + missing + @entries.flat_map { |entry| faults_of(entry, begun[entry.number], ended[entry.number]) }
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      def runs_by_number(runs, word)
        pairs = runs.map(&:split).select { |name, number| name == word && number != "0" }
                    .map { |_, number, pid| [number.to_i, pid.to_i] }
        pairs.group_by(&:first).transform_values { |found| found.map(&:last) }
      end

      # Each request has one outcome.
      def missing
        seen = @entries.map(&:number).tally
        (1..@last).filter_map { |number| "#{number} has #{seen.fetch(number, 0)} outcomes" unless seen[number] == 1 }
      end

      def faults_of(entry, begun, ended)
        case entry.outcome
        when :answered
          return [] if begun == [entry.process] && ended == [entry.process]

          ["#{told(entry)} was answered by #{entry.process}, ran in #{begun.inspect}, ended in #{ended.inspect}"]
        when :left then []
        when :lost then lost_faults(entry, begun.to_a, ended.to_a)
        else ["#{told(entry)}: #{entry.outcome}, #{entry.detail} (it ran in #{begun.inspect}, ended in #{ended.inspect})"]
        end
      end

      # Only who was killed while it had the connection may lose a request, and have run it; but what others are sent behind
      # may have been run by another one before, and its answer not have been read.
      def lost_faults(entry, begun, ended)
        guilty = @kills.select { |kill| kill.ports.include?(entry.port) && kill.at.between?(entry.since, entry.at) }.map(&:pid)
        return ["#{told(entry)} was lost, but nobody was killed who had its connection: #{entry.detail}"] if guilty.empty?

        others = begun - guilty - (entry.followed ? ended : [])
        others.empty? ? [] : ["#{told(entry)} was lost by #{guilty.join(", ")}, but ran in #{others.join(", ")}: #{entry.detail}"]
      end

      def told(entry) = "#{entry.number} (#{entry.path})"
    end
  end
end
