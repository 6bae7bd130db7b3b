# frozen_string_literal: true

module Fairlead
  class Budgets
    # What a supervisor says of its budgets to those of older and of newer code, and hears of theirs. The first process
    # passes it on: who has one says it to its {Parent}, the first process itself has a {Succession}.
    class Exchange
      # @param budgets [Budgets]
      def initialize(budgets)
        @budgets = budgets
        @said = nil
      end

      # Says what has changed.
      #
      # @param parent [Parent, nil]
      # @param succession [Succession, nil]
      def attend(now, parent, succession)
        others = parent || succession or return
        @budgets.wishes(now) { |server, count| parent.wish(server, count) } if parent
        kept = @budgets.kept
        others.keeps(@said = kept) if kept != @said
      end

      # @param message [Message::Keeps, Message::Wish]
      def hear(message)
        case message
        when Message::Keeps then @budgets.note(Kept.new(**message.to_h))
        when Message::Wish then @budgets.lend(message.server, message.count)
        end
      end

      # This supervisor ends, and its process stays.
      #
      # @param succession [Succession]
      def end(succession) = succession.keeps(@budgets.kept.with(servers: []))
    end
  end
end
