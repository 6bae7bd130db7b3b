# frozen_string_literal: true

module Fairlead
  # The supervisor's table of workers: which there are, which there should be, and what is due. It knows no process, no socket
  # and no clock: events go in with their time, and {#due} answers what to do next.
  #
  # A worker has a slot (its row in the shared page and its channel, never used by two at once) and an index: 0 up to the number
  # of its kind. A successor has its predecessor's index and a slot of its own. Each restart begins a generation.
  #
  # Times are seconds of any monotonic clock.
  class WorkerTable
    # @!attribute kind [Symbol] :regular, :relief or :lane.
    # @!attribute state [Symbol] :booting, :serving, :draining or :stopping.
    # @!attribute pid [Integer, nil] nil until it is forked.
    # @!attribute channel [Object, nil] the supervisor's end of its control socket; the table does not use it.
    # @!attribute since [Float] when it entered its state.
    # @!attribute deadline [Float, nil] when its state has lasted too long.
    # @!attribute failure [String, nil] why it could not boot, in its own words.
    # @!attribute refused [Boolean, nil] whether the user has to change something before any worker can boot.
    # @!attribute handover [Boolean, nil] whether it drains with a handover.
    Worker = Struct.new(:slot, :index, :kind, :generation, :state, :pid, :channel, :since, :deadline, :failure, :refused, :handover,
                        keyword_init: true) do
      def regular? = kind == :regular
      def lane? = kind == :lane
      def booting? = state == :booting
      def serving? = state == :serving
      def leaving? = state == :draining || state == :stopping
    end

    Fork = Data.define(:worker)
    Drain = Data.define(:worker, :handover)
    Stop = Data.define(:worker)
    Kill = Data.define(:worker)

    PATIENCE = 4 # failed boots of one worker in a row, while none serves, until the server gives up
    FEW_RELIEFS = 4 # the most relief workers, if there are not more regular ones
    REPLACED = -1 # the generation of a worker that is to be replaced: older than any
    # Seconds:
    RESPAWN_DELAY = 0.25 # until a worker that failed to boot is forked again; see RespawnPolicy
    CALM = 5.0 # without a stuck worker, until a relief worker retires
    LANE_IDLE = 10.0 # without work, until a lane worker retires
    LANE_DELAY = 5.0 # after a lane worker that could not boot, until the next is forked
    GRACE = 1.0 # for a worker to end at once, until it is killed
    private_constant :FEW_RELIEFS, :REPLACED, :RESPAWN_DELAY

    attr_reader :size
    # @return [Integer] how many there can be in all.
    attr_reader :slots

    # @param slots [Integer] how many there can be in all, including those that drain.
    def initialize(size, slots:, boot_timeout:, drain_timeout:)
      @size = size
      @slots = slots
      @boot_timeout = boot_timeout
      @drain_timeout = drain_timeout
      @workers = []
      @respawns = Hash.new { |respawns, index| respawns[index] = RespawnPolicy.new(RESPAWN_DELAY, first_at_once: true) }
      @generation = 0
      @oldest_wanted = 0
      @stopping = nil
      @lane_not_before = 0.0
    end

    include Enumerable

    def each(&) = @workers.each(&)

    def [](pid) = @workers.find { |worker| worker.pid == pid }

    def empty? = @workers.empty?

    # @return [Boolean] whether each index has a worker that serves.
    def complete? = (0...@size).all? { |index| serving_at(index) }

    # @return [Array<Integer>] the slots that no worker has, the lowest first.
    def free_slots = (0...@slots).to_a - map(&:slot)

    def restarting? = !@stopping && outdated.any?

    # @return [Boolean] whether the workers from before the last restart stay, because no successor could boot.
    def restart_given_up? = @oldest_wanted < @generation

    def stopping? = !@stopping.nil?

    # @return [Boolean] whether no worker serves, and one has failed to boot too often.
    def hopeless?
      return false if @stopping || @workers.any?(&:serving?)

      @respawns.each_value.any? { |respawn| respawn.failed_boots >= PATIENCE }
    end

    # @return [Integer] how often the worker of an index ended unexpectedly.
    def restarts(index) = @respawns[index].restarts

    # What is to be done now. Each action is answered once: the caller must do it.
    #
    # @return [Array<Fork, Drain, Stop, Kill>]
    def due(now)
      expirations(now) + (@stopping ? stops(now) : retirements(now) + vacancies(now) + successions(now))
    end

    # @return [Float, nil] when {#due} will have something new, if no event comes before.
    def next_deadline(now)
      deadlines = @workers.filter_map(&:deadline)
      unless @stopping
        deadlines.concat(vacant.map { |index| @respawns[index].not_before })
        deadlines << @respawns[outdated.first.index].not_before if outdated.any? && none?(&:booting?)
      end
      # A deadline in the past waits for a free slot, thus for an event.
      deadlines.select { |deadline| deadline > now }.min
    end

    # A worker for requests that wait while all others are stuck.
    #
    # @return [Fork, nil] nil if there is no room for it.
    def add_relief(now) = add_bounded(:relief, [@size, FEW_RELIEFS].max, now)

    # A worker for requests that hold Ruby's lock. There are at most as many as regular ones.
    #
    # @return [Fork, nil] nil if there is no room for it, or one boots.
    def add_lane(now)
      add_bounded(:lane, max_lanes, now) unless now < @lane_not_before || any? { |worker| worker.lane? && worker.booting? }
    end

    # @return [Integer] 0 for one worker: its app may count on being alone.
    def max_lanes = @size > 1 ? @size : 0

    # A lane worker has something to do.
    def lane_busy(worker, now)
      worker.deadline = now + LANE_IDLE if worker.serving? && worker.generation >= @oldest_wanted
    end

    # Some worker is stuck: relief workers stay.
    def relief_needed(now)
      each { |worker| worker.deadline = now + CALM if worker.kind == :relief && worker.serving? }
    end

    # A worker may never come back from a request: it gets a successor, and drains once that serves.
    #
    # @return [Boolean] false if the worker is about to go already.
    def replace(worker)
      return false if @stopping || !worker.serving? || worker.generation == REPLACED

      worker.generation = REPLACED
      true
    end

    def forked(worker, pid, channel = nil)
      worker.pid = pid
      worker.channel = channel
    end

    def ready(worker, now)
      return unless worker.booting?

      enter(worker, :serving, now, { relief: CALM, lane: LANE_IDLE }[worker.kind])
      @respawns[worker.index].served if worker.regular?
    end

    # @return [Symbol] :expected, if it was told to end; :boot, if it never served; :death.
    def ended(worker, now)
      @workers.delete(worker)
      return :expected if worker.leaving?

      @lane_not_before = now + LANE_DELAY if worker.lane? && worker.booting?
      record_failure(worker, now) if worker.regular?
      return :death if worker.serving?

      # The restart is given up if its workers cannot boot: those that serve stay.
      @oldest_wanted = 0 if serving_at(worker.index) && @respawns[worker.index].failed_boots >= PATIENCE
      :boot
    end

    # Replaces all workers, one after the other: the successor serves, then its predecessor drains.
    def restart
      @generation += 1
      @oldest_wanted = @generation
      @respawns.each_value(&:reset)
    end

    # @return [Boolean] false if there is no room for one more.
    def grow
      return false if @size + 2 > @slots

      @size += 1
      true
    end

    # @return [Boolean] false if it is the last worker.
    def shrink
      return false if @size <= 1

      @size -= 1
      true
    end

    # All drain, and none is forked any more. Those that drain already keep their time.
    #
    # @param handover [Boolean] whether others serve: then each connection gets one more answer before it is closed.
    def stop(handover: false)
      @handover = handover
      @stopping ||= :drain
    end

    def stop_now = @stopping = :now

    private

    def record_failure(worker, now)
      @respawns[worker.index].ended(now, (now - worker.since if worker.serving?), weight: worker.refused ? PATIENCE : 1)
    end

    # One slot stays free for a successor.
    def add_bounded(kind, most, now)
      return if @stopping || @workers.size + 2 > @slots

      index = ((0...most).to_a - select { |worker| worker.kind == kind }.map(&:index)).first
      fork_worker(index, now, kind) if index
    end

    def expirations(now)
      select { |worker| worker.deadline && worker.deadline <= now }.map do |worker|
        if worker.state == :draining
          stop_worker(worker, now)
        elsif worker.serving?
          drain(worker, now, handover: true)
        else
          worker.failure ||= "It did not serve within #{@boot_timeout} s (boot_timeout)." if worker.booting?
          worker.deadline = nil
          Kill.new(worker)
        end
      end
    end

    def stops(now)
      return reject { |worker| worker.state == :stopping }.map { |worker| stop_worker(worker, now) } if @stopping == :now

      reject(&:leaving?).map { |worker| drain(worker, now, handover: @handover) } + revocations
    end

    # Nobody serves any more who would take their connections, or answer their clients.
    def revocations
      affected = @handover ? [] : select { |worker| worker.state == :draining && worker.handover }
      affected.map { |worker| Drain.new(worker, worker.handover = false) }
    end

    def retirements(now)
      surplus = select { |worker| !worker.leaving? && superfluous?(worker) }
      surplus.map { |worker| drain(worker, now, handover: true) }
    end

    # A regular worker goes once its successor serves. A lane worker goes with its generation: a new one comes when it is needed.
    def superfluous?(worker)
      return worker.index >= @size || (worker.serving? && succeeded?(worker)) if worker.regular?

      worker.serving? && worker.generation < (worker.lane? ? @oldest_wanted : 0)
    end

    def vacancies(now)
      vacant.select { |index| @respawns[index].not_before <= now }.filter_map { |index| fork_worker(index, now) }
    end

    def successions(now)
      return [] if @workers.any?(&:booting?)

      predecessor = outdated.first or return []
      return [] if @respawns[predecessor.index].not_before > now

      [fork_worker(predecessor.index, now)].compact
    end

    def outdated
      select { |worker| worker.regular? && worker.serving? && worker.generation < @oldest_wanted }.sort_by(&:index)
    end

    # @return [Fork, nil] nil if there is no free slot.
    def fork_worker(index, now, kind = :regular)
      slot = free_slots.first or return # the lowest: a worker's figures stay in one row
      worker = Worker.new(slot:, index:, kind:, generation: @generation)
      enter(worker, :booting, now, @boot_timeout)
      @workers << worker
      Fork.new(worker)
    end

    def vacant
      (0...@size).to_a - select { |worker| worker.regular? && !worker.leaving? }.map(&:index)
    end

    def serving_at(index)
      find { |worker| worker.regular? && worker.index == index && worker.serving? }
    end

    def succeeded?(worker)
      any? { |one| one.regular? && one.serving? && one.index == worker.index && one.generation > worker.generation }
    end

    def drain(worker, now, handover: false)
      enter(worker, :draining, now, @drain_timeout)
      Drain.new(worker, worker.handover = handover)
    end

    def stop_worker(worker, now)
      enter(worker, :stopping, now, GRACE)
      Stop.new(worker)
    end

    def enter(worker, state, now, timeout = nil)
      worker.state = state
      worker.since = now
      worker.deadline = timeout && (now + timeout)
    end
  end
end
