# frozen_string_literal: true

module Fairlead
  # Failures that can be read: two lists of thousands are not told element by element, so that what else has failed
  # still shows.
  module Legible
    # Characters that a value may take.
    MOST = 4_000
    # Characters told from where two long values differ.
    PART = 300

    # What minitest says of a value.
    def mu_pp(object)
      text = super
      text.size > MOST ? "#{text[0, MOST / 2]} … (#{text.size} characters) … #{text[(-MOST / 2)..]}" : text
    end

    # What minitest says of two that should be equal.
    def diff(expected, actual)
      texts = [expected, actual].map(&:inspect)
      return super if texts.sum(&:size) <= MOST

      first = texts[0].each_char.with_index.find { |character, at| texts[1][at] != character }&.last || texts[0].size
      from = [first - (PART / 3), 0].max
      parts = texts.map { |text| "#{"… " if from.positive?}#{text[from, PART]}#{" …" if text.size > from + PART}" }
      "They differ from character #{first} of #{texts.map(&:size).join(" and ")} on.\n" \
        "Expected: #{parts[0]}\n  Actual: #{parts[1]}"
    end

    Minitest::Test.prepend(self)
  end
end
