# frozen_string_literal: true

module Fairlead
  class Status
    # What the workers say of their database pools when somebody looks. That is not in the page, as it would cost each query
    # something: a worker is asked, says it when it can, and is not waited for. So each look shows what was so at the look
    # before, and of a worker that is stuck, what it has said last.
    class Pools
      KEYS = %i[pool role shard size connections in_use idle waiting oldest_wait timeouts].freeze
      private_constant :KEYS

      # In a thread of its own: somebody who is stuck may hold the lock of a pool.
      #
      # @yieldparam pools [Array<Hash>, nil] of this process, see {ActiveRecord.stat}; nil: it cannot be told now.
      def self.look
        Thread.new { yield here }.name = "fairlead pools"
      rescue ThreadError # the system allows no more
        yield nil
      end

      def self.here
        ActiveRecord.stat.map { |pool| pool.slice(*KEYS) }
      rescue StandardError # of whatever an app does to its pools
        []
      end
      private_class_method :here

      def initialize
        @said = {} # process id => [when, its pools]
        @asked = {}
      end

      # @yieldreturn [Boolean] whether the worker was asked; not called while it owes an answer.
      def ask(pid)
        @asked[pid] = true if !@asked[pid] && yield
      end

      # @param pools [Array<Hash>, nil] nil: what it has said before stands.
      def note(pid, pools)
        @asked.delete(pid)
        @said[pid] = [now, pools] if pools
      end

      # @param workers [Array<Hash>] see {Figures.of}. What others have said is forgotten.
      # @return [Array<Hash>] the same, with what each has said.
      def beside(workers)
        [@said, @asked].each { |table| table.keep_if { |pid, _| workers.any? { |worker| worker[:pid] == pid } } }
        workers.map do |worker|
          at, pools = @said[worker[:pid]]
          { **worker, pools: pools || [], pools_age: at && (now - at) }
        end
      end

      private

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
