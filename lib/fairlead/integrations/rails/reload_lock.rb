# frozen_string_literal: true

require "active_support/concurrency/share_lock"

# Rails' lock between running and reloading code knows its owners by `Thread.current`, also under
# `isolation_level = :fiber`. To it, two requests in fibers of one thread would be one owner, which may unload
# classes under itself. Within ShareLock alone, `Thread` is what the constant means there from now on: it asks
# nothing of it but `current`, and the fiber that owns the present one's state is as good a key as a thread.
ActiveSupport::Concurrency::ShareLock.const_set(:Thread, Fairlead::FiberOwner)
