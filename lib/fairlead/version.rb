# frozen_string_literal: true

module Fairlead
  VERSION = "0.1.0"
end
