# frozen_string_literal: true

# At least two workers, so that the page can compare them.
workers [Etc.nprocessors, 2].max
