# frozen_string_literal: true

module Fairlead
  # Reads {ProcessUsage} again and again without disturbing: to find a process's memory, the kernel walks its pages, so that is done
  # seldom.
  class ProcessMeter
    # @param costly [Numeric] seconds for which figures hold that are costly to find.
    def initialize(costly: 10.0)
      @costly = costly
      @known = {} # process id => [usage, when]
    end

    # @return [ProcessUsage, nil] nil if there is no such process here.
    def call(pid)
      now = Clock.now
      @known.delete_if { |_, (_, at)| now - at >= @costly } # nobody asks again for one that has ended
      known, = @known[pid]
      usage = ProcessUsage.of(pid, known:) or return
      @known[pid] ||= [usage, now]
      usage
    end

    # @return [Integer] of how many processes it remembers figures.
    def size = @known.size
  end
end
