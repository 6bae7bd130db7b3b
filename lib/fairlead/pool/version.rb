# frozen_string_literal: true

module Fairlead
  class Pool
    # That of the gem fairlead, with which it is released.
    VERSION = "0.1.0"
  end
end
