# frozen_string_literal: true

# Read by Fairlead, here as in any app. Two workers at least, so that the page has something to compare.
workers [Etc.nprocessors, 2].max
