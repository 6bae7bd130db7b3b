# frozen_string_literal: true

module Fairlead
  class Budgets
    # What a supervisor says of its budgets to those of older and of newer code, and hears of theirs. The first process
    # passes it on.
    class Exchange
      # @param budgets [Budgets]
      def initialize(budgets)
        @budgets = budgets
        @said = nil
      end

      # Says what has changed.
      #
      # @param parent [ParentLink, nil]
      def attend(now, parent)
        return unless parent

        @budgets.wishes(now) { |server, count| parent.post(Messages::Wish.new(server:, count:)) }
        kept = @budgets.kept
        parent.post(Messages::Keeps.new(**(@said = kept).to_h)) if kept != @said
      end

      # @param message [Messages::Keeps, Messages::Wish]
      def hear(message)
        case message
        when Messages::Keeps then @budgets.note(Kept.new(**message.to_h))
        when Messages::Wish then @budgets.lend(message.server, message.count)
        end
      end
    end
  end
end
