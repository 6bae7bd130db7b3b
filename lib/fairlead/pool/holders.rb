# frozen_string_literal: true

module Fairlead
  class Pool
    # Which fiber holds which place. Everybody looks only for its own entry, and without the pool's lock; all
    # writes are under it. CRuby's Hash allows that. Where Ruby runs in parallel, the table needs a lock.
    module Holders
      def self.build
        table = {}.compare_by_identity
        table.extend(Locked).prepare unless RUBY_ENGINE == "ruby"
        table
      end

      # Each operation under a lock of the table's own.
      module Locked
        def prepare
          @lock = ::Thread::Mutex.new
        end

        # The only one that is called while interrupts are not deferred. On JRuby, one that comes as the lock is taken
        # would leave it locked.
        def [](fiber)
          ::Thread.handle_interrupt(::Object => :never) { @lock.synchronize { super } }
        end

        def []=(fiber, place)
          @lock.synchronize { super }
        end

        def delete(fiber)
          @lock.synchronize { super }
        end
      end
    end
    private_constant :Holders
  end
end
