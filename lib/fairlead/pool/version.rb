# frozen_string_literal: true

module Fairlead
  # The version of the gem fairlead-pool, released together with the gem fairlead. The gemspec loads this file, which
  # must not define the class Pool: the pool's other files would never be loaded.
  POOL_VERSION = "0.1.0"
end
