# frozen_string_literal: true

require_relative "../row_pacing"
require_relative "../row_turn"

module Fairlead
  module Drivers
    module Mysql2
      # The rows of a result. Those of a large one are made in C, one after the other: the other fibers have their turns
      # between them.
      module Rows
        # @api private
        attr_writer :fairlead_client

        def each(*arguments, &block)
          return super unless block_given? && Drivers.fibers?
          return read_ahead(block) { |pass| super(*arguments, &pass) } if stream?(*arguments)
          return super if size < Turn::ROWS

          turn = Turn.new
          super(*arguments) do |row|
            turn.pass
            block.call(row)
          end
        end

        private

        # mysql2 cannot go on after a result that was not read to its end.
        def read_ahead(block, &)
          Stream.each(->(&pass) { yield pass }, ->(reader) { @fairlead_client&.fairlead_stop(reader) }, &block)
        end

        def stream?(options = NONE) = options.fetch(:stream) { @query_options[:stream] }
      end
    end
  end
end
