# frozen_string_literal: true

module Fairlead
  class Budget
    # Who gets how many connections of the budget: arithmetic alone, for {Budget}.
    #
    # What is free goes round among those who wait, in the order in which they came, those first who have less than
    # their share of what all could use now. When nothing is free, those who have more than their share are asked
    # to give back what they are done with.
    module Shares
      # @!attribute slot [Integer]
      # @!attribute held [Integer] connections, or room for them, that the worker has.
      # @!attribute waiting [Integer] those who wait for one there, without those for whom one is on its way.
      # @!attribute since [Integer] when the first of them came, of any clock.
      # @!attribute connecting [Integer] of what it holds, how many are not open yet.
      # @!attribute owed [Integer] how many it has been asked to give back and has not yet.
      Claim = Data.define(:slot, :held, :waiting, :since, :connecting, :owed)

      # To close a connection here and open one there takes as long as a hundred queries, and what is due to a worker moves
      # with each request that waits. So one makes do with all but a fifth of that, and gets a few more at a time: often they
      # are enough.
      TOLERATED = 0.2
      AT_A_TIME = 4
      # What is free is given to those who open it now: so many at a time, or as many as are open, as pools grow.
      CONNECTING = 8
      private_constant :TOLERATED, :AT_A_TIME, :CONNECTING

      module_function

      # @param claims [Array<Claim>] of all workers.
      # @param limit [Integer] the budget.
      # @param free [Integer] what of it nobody has.
      # @return [Hash{Integer => Integer}] slot => how many more it may have.
      def grants(claims, limit, free)
        granted = Hash.new(0)
        wishing = claims.select { |claim| claim.waiting.positive? }
        share = scale(claims, limit)
        while free.positive?
          wishing.reject! { |claim| granted[claim.slot] >= [claim.waiting, room_to_connect(claim)].min }
          claim = wishing.min_by { |one| urgency(one, granted[one.slot], share) } or break
          granted[claim.slot] += 1
          free -= 1
        end
        granted
      end

      # @param coming [Integer] how many connections are being closed.
      # @return [Hash{Integer => Integer}] slot => how many it should give back.
      def recalls(claims, limit, coming)
        share = scale(claims, limit)
        missing = claims.sum { |claim| claim.waiting.positive? ? lack(claim, whole(claim, share)) : 0 }
        missing = [missing, claims.sum(&:held) + coming - limit].max # the budget may have become smaller
        missing -= coming + claims.sum(&:owed)
        recalled = Hash.new(0)
        missing.times do
          donor = claims.max_by { |claim| excess(claim, recalled[claim.slot], share) } or break
          break unless excess(donor, recalled[donor.slot], share).positive?

          recalled[donor.slot] += 1
        end
        rotate(claims, missing - recalled.values.sum) { |slot| recalled[slot] += 1 }
        recalled
      end

      def room_to_connect(claim) = [CONNECTING, claim.held - claim.connecting].max - claim.connecting

      # How many more it should open now.
      def at_once(claim) = [AT_A_TIME - claim.connecting, 0].max

      # What each gets of one connection that it could use.
      def scale(claims, limit)
        wanted = claims.sum { |claim| claim.held + claim.waiting }
        wanted > limit ? limit.fdiv(wanted) : 1.0
      end

      # What is due to a worker, in whole connections: at least one.
      def whole(claim, share) = [((claim.held + claim.waiting) * share).floor, 1].max

      def lack(claim, due)
        return 0 if claim.held > due * (1 - TOLERATED)

        (due - claim.held).clamp(0, at_once(claim))
      end

      def excess(claim, recalled, share)
        claim.held - claim.owed - recalled - [(claim.held + claim.waiting) * share, 1].max
      end

      # With fewer connections than workers, one goes from worker to worker: to the one whose requests have waited longest.
      def rotate(claims, missing)
        waiting = claims.select { |claim| claim.waiting.positive? }.sort_by(&:since)
        poor = waiting.select { |claim| claim.held.zero? }.first([missing, 0].max)
        rich = waiting.select { |claim| claim.held == 1 && claim.owed.zero? }.reverse
        poor.zip(rich) { |one, other| yield other.slot if other && other.since > one.since }
      end

      def urgency(claim, granted, share)
        [claim.held + granted < whole(claim, share) ? 0 : 1, granted, claim.since, claim.slot]
      end
      private_class_method :room_to_connect, :scale, :whole, :lack, :excess, :rotate, :urgency
    end
  end
end
