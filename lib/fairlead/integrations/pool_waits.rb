# frozen_string_literal: true

module Fairlead
  # What a request waits for in a {Fairlead::Pool} is a connection, not just a lock.
  module PoolWaits
    def self.establish = Pool::Waiter.prepend(self)

    def wait(...) = RequestTimes.during(RequestTimes::CONNECTION) { super }
  end
end
