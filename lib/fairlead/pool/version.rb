# frozen_string_literal: true

module Fairlead
  # Of the gem fairlead-pool: that of the gem fairlead, with which it is released. Whoever reads the gem's specification loads
  # this file, and must not define the pool itself by that: the rest of it would never be loaded.
  POOL_VERSION = "0.1.0"
end
