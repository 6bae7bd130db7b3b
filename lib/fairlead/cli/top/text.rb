# frozen_string_literal: true

module Fairlead
  class CLI
    # Text that keeps its place on a terminal: cut and padded by the columns it takes, and without control characters, since paths come
    # from clients.
    module TopText
      # Characters that take two columns (Unicode Standard Annex #11), by blocks.
      WIDE = /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]
              |[\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/x
      COMBINING = /\p{M}/
      STEPS = %w[▁ ▂ ▃ ▄ ▅ ▆ ▇ █].freeze
      private_constant :WIDE, :COMBINING, :STEPS

      module_function

      # @return [String] with a question mark for everything that a terminal could understand as a command.
      def plain(text) = text.to_s.encode(Encoding::UTF_8, invalid: :replace, undef: :replace).scrub("?").gsub(/[[:cntrl:]\p{Cf}]/, "?")

      # @return [Integer] columns.
      def width(text) = text.ascii_only? ? text.size : text.size + text.scan(WIDE).size - text.scan(COMBINING).size

      # @return [String] of at most so many columns.
      def cut(text, columns)
        return text if width(text) <= columns
        return "" if columns < 1

        text = text[0, columns - 1]
        text = text.chop while width(text) > columns - 1
        "#{text}…"
      end

      # @return [String] of exactly so many columns.
      def fit(text, columns, left: true)
        text = cut(text, columns)
        space = " " * (columns - width(text))
        left ? text + space : space + text
      end

      # Joins as many items to a line as it can take.
      #
      # @return [Array<String>]
      def flow(items, columns, gap: "  ")
        items.each_with_object([+""]) { |item, lines|
          lines << +"" if !lines.last.empty? && width(lines.last) + gap.size + width(item) > columns
          lines.last << gap unless lines.last.empty?
          lines.last << cut(item, columns)
        }.reject(&:empty?)
      end

      # @return [Array<String>] the text's lines.
      def wrap(text, columns) = flow(text.split, columns, gap: " ")

      # @param numbers [Array<Numeric>]
      # @return [String] a character for each, as high as its share of the largest.
      def bars(numbers)
        most = [numbers.max.to_f, 1.0].max
        numbers.map { |number| STEPS[(number / most * (STEPS.size - 1)).round] }.join
      end
    end
  end
end
