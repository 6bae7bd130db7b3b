# frozen_string_literal: true

module Fairlead
  class ConnectionBudget
    # Decides which worker gets how many connections of the budget: arithmetic alone, for {Allocator}.
    #
    # Free connections go round among the workers whose requests wait, in the order in which these came; workers with less than
    # their share of what all could use now go first. When nothing is free, workers with more than their share are asked to give
    # back what they are done with.
    module Allocation
      # @!attribute slot [Integer] the worker's.
      # @!attribute held [Integer] connections, or room for them, that the worker has.
      # @!attribute waiting [Integer] requests that wait there, without those for which a connection is on its way.
      # @!attribute since [Integer] when the first of them came, of any clock.
      # @!attribute connecting [Integer] of what it holds, how many are not open yet.
      # @!attribute owed [Integer] how many it has been asked to give back and has not yet.
      Demand = Data.define(:slot, :held, :waiting, :since, :connecting, :owed)

      # Moving a connection from one worker to another takes as long as a hundred queries, and shares move with each request
      # that waits. So a worker makes do with all but this part of its share, and gets a few more at a time, often enough.
      TOLERATED = 0.2
      AT_A_TIME = 4
      # Free connections go to workers that open them now: so many at a time, or as many as are open, as pools grow.
      CONNECTING = 8
      private_constant :TOLERATED, :AT_A_TIME, :CONNECTING

      module_function

      # @param demands [Array<Demand>] of all workers.
      # @param limit [Integer] the budget.
      # @param free [Integer] what of it nobody has.
      # @return [Hash{Integer => Integer}] slot => how many more it may have.
      def grants(demands, limit, free)
        granted = Hash.new(0)
        waiting = demands.select { |demand| demand.waiting.positive? }
        scale = scale(demands, limit)
        while free.positive?
          waiting.reject! { |demand| granted[demand.slot] >= [demand.waiting, room_to_connect(demand)].min }
          demand = waiting.min_by { |one| urgency(one, granted[one.slot], scale) } or break
          granted[demand.slot] += 1
          free -= 1
        end
        granted
      end

      # @param closing [Integer] how many connections are being closed.
      # @return [Hash{Integer => Integer}] slot => how many it should give back.
      def recalls(demands, limit, closing)
        scale = scale(demands, limit)
        missing = demands.sum { |demand| demand.waiting.positive? ? lack(demand, share(demand, scale)) : 0 }
        missing = [missing, demands.sum(&:held) + closing - limit].max # the budget may have become smaller
        missing -= closing + demands.sum(&:owed)
        recalled = Hash.new(0)
        missing.times do
          donor = demands.max_by { |demand| excess(demand, recalled[demand.slot], scale) } or break
          break unless excess(donor, recalled[donor.slot], scale).positive?

          recalled[donor.slot] += 1
        end
        rotate(demands, missing - recalled.values.sum) { |slot| recalled[slot] += 1 }
        recalled
      end

      # How many more the worker should open now.
      def at_once(demand) = [AT_A_TIME - demand.connecting, 0].max

      def room_to_connect(demand) = [CONNECTING, demand.held - demand.connecting].max - demand.connecting

      # What a worker gets of each connection that it could use.
      def scale(demands, limit)
        wanted = demands.sum { |demand| demand.held + demand.waiting }
        wanted > limit ? limit.fdiv(wanted) : 1.0
      end

      # A worker's share in whole connections: at least one.
      def share(demand, scale) = [((demand.held + demand.waiting) * scale).floor, 1].max

      def lack(demand, share)
        return 0 if demand.held > share * (1 - TOLERATED)

        (share - demand.held).clamp(0, at_once(demand))
      end

      def excess(demand, recalled, scale)
        demand.held - demand.owed - recalled - [(demand.held + demand.waiting) * scale, 1].max
      end

      # With fewer connections than workers, a connection moves on to the worker whose requests have waited longest.
      def rotate(demands, missing)
        waiting = demands.select { |demand| demand.waiting.positive? }.sort_by(&:since)
        poor = waiting.select { |demand| demand.held.zero? }.first([missing, 0].max)
        rich = waiting.select { |demand| demand.held == 1 && demand.owed.zero? }.reverse
        poor.zip(rich) { |one, other| yield other.slot if other && other.since > one.since }
      end

      def urgency(demand, granted, scale)
        [demand.held + granted < share(demand, scale) ? 0 : 1, granted, demand.since, demand.slot]
      end
      private_class_method :room_to_connect, :scale, :share, :lack, :excess, :rotate, :urgency
    end
  end
end
