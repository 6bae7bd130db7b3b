# frozen_string_literal: true

module Fairlead
  # All that knows the insides of ActiveRecord is below lib/fairlead/active_record.
  module ActiveRecord
    autoload :Leases, "fairlead/active_record/leases"
  end
end
