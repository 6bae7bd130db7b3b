# frozen_string_literal: true

require "active_support/concurrency/share_lock"

# Rails' lock between running and reloading code knows its owners by `Thread.current`, even under `isolation_level = :fiber`. It
# would take two requests in fibers of one thread for one owner, which may unload classes under itself. ShareLock only calls
# `Thread.current`, and the fiber that owns the current state is as good a key as a thread.
ActiveSupport::Concurrency::ShareLock.const_set(:Thread, Fairlead::FiberOwner)

Fairlead::Compatibility.works?(:share_lock) do
  lock = ActiveSupport::Concurrency::ShareLock.new
  Array.new(2) { Fairlead::Integrations.in_another_request { lock.start_exclusive(no_wait: true) } } == [true, false]
end
