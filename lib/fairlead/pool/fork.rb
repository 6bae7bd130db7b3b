# frozen_string_literal: true

module Fairlead
  class Pool
    # All pools of the process, where it can fork; without those of Ractors, which can neither fork nor see this table.
    POOLS = ::Process.respond_to?(:_fork) ? ::ObjectSpace::WeakMap.new : nil
    private_constant :POOLS

    # @api private
    def self.track(pool)
      return if defined?(::Ractor) && !::Ractor.current.equal?(::Ractor.main)

      POOLS[pool] = true if POOLS
    end

    # The child has its parent's pools, but not the threads that held connections or waited for them, and it must
    # not use its parent's sockets. What is called here never waits in a scheduler, which may still be the parent's, with fibers that
    # would go on in the child.
    #
    # @api private
    def self.after_fork
      work = proc { POOLS&.keys&.each(&:forked) }
      ::Fiber.respond_to?(:blocking) ? ::Fiber.blocking(&work) : work.call
      nil
    end

    # Kernel#fork, Process.daemon and IO.popen("-") all call it.
    module ForkTracker
      def _fork
        pid = super
        Pool.after_fork if pid.zero?
        pid
      end
    end
    private_constant :ForkTracker

    ::Process.singleton_class.prepend(ForkTracker) if POOLS
  end
end
