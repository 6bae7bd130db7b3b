# frozen_string_literal: true

require_relative "../parts"

module Fairlead
  # The supervisor's table of workers: who there is, who should be, and what is due. It knows no process, no
  # socket and no clock: events go in with the time they happened at, and {#due} says what to do next.
  #
  # A worker has a slot (its place in the shared page and its channel, never used by two at once) and, if it is
  # one of the regular ones, an index: 0 up to the number of workers. A successor has its predecessor's index
  # and a slot of its own. Each restart begins a generation.
  #
  # Times are seconds of any monotonic clock.
  class WorkerTable
    autoload :Processes, "fairlead/supervision/worker_processes"
    autoload :Seat, "fairlead/supervision/worker_place"
    private_constant :Seat

    # @!attribute slot [Integer]
    # @!attribute index [Integer]
    # @!attribute kind [Symbol] :regular, :relief, :lane, or the name of another kind, which only {#add_extra} makes.
    # @!attribute generation [Integer]
    # @!attribute state [Symbol] :booting, :serving, :draining or :stopping.
    # @!attribute pid [Integer, nil] nil until it is forked.
    # @!attribute channel [Object, nil] the supervisor's end of its control socket; the table does not use it.
    # @!attribute since [Float] when it came into its state.
    # @!attribute deadline [Float, nil] when its state has lasted too long.
    # @!attribute failure [String, nil] why it could not boot, in its own words.
    # @!attribute refused [Boolean, nil] whether no other could boot either.
    Worker = Struct.new(:slot, :index, :kind, :generation, :state, :pid, :channel, :since, :deadline, :failure, :refused,
                        keyword_init: true) do
      def regular? = kind == :regular
      def lane? = kind == :lane
      def booting? = state == :booting
      def serving? = state == :serving
      def leaving? = state == :draining || state == :stopping
    end

    # What is due.
    Fork = Data.define(:worker)
    Drain = Data.define(:worker, :handover)
    Stop = Data.define(:worker)
    Kill = Data.define(:worker)

    # So many boots of one worker in a row may fail while none serves; then there is no use in another.
    PATIENCE = 4

    # There are at most as many relief workers as regular ones, or so many.
    FEW_RELIEFS = 4

    # A relief worker retires when none of the others has been stuck for this long.
    CALM = 5.0

    # A lane worker retires when it has had nothing to do for this long.
    LANE_IDLE = 10.0

    # After one that could not boot, the next is not forked before this time.
    LANE_DELAY = 5.0

    # The generation of a worker that is older than any.
    REPLACED = -1
    private_constant :REPLACED

    # How long a worker that was told to stop at once may take, before it is killed.
    GRACE = 1.0

    # @return [Integer] how many regular workers there should be.
    attr_reader :size
    # @return [Integer] how many there can be in all.
    attr_reader :slots
    # @return [Integer]
    attr_reader :generation

    # @param size [Integer]
    # @param slots [Integer] how many there can be in all, with those that drain.
    # @param boot_timeout [Float] seconds
    # @param drain_timeout [Float] seconds
    def initialize(size, slots:, boot_timeout:, drain_timeout:)
      @size = size
      @slots = slots
      @boot_timeout = boot_timeout
      @drain_timeout = drain_timeout
      @workers = []
      @seats = Hash.new { |seats, index| seats[index] = Seat.new }
      @generation = 0
      @oldest_wanted = 0
      @stopping = nil
      @lane_not_before = 0.0
    end

    include Enumerable

    def each(&) = @workers.each(&)

    def [](pid) = @workers.find { |worker| worker.pid == pid }

    def empty? = @workers.empty?

    # @return [Boolean] whether each place has a worker that serves.
    def complete?
      (0...@size).all? { |index| serving_at(index) }
    end

    # @return [Array<Integer>] the slots that no worker has, the lowest first.
    def free_slots = (0...@slots).to_a - map(&:slot)

    # @return [Boolean] whether a restart is under way.
    def restarting?
      !@stopping && @workers.any? { |worker| outdated?(worker) }
    end

    # @return [Boolean] whether the workers from before the last restart stay, since no successor could boot.
    def restart_given_up? = @oldest_wanted < @generation

    def stopping? = !@stopping.nil?

    # @return [Boolean] whether there is no use in going on: none serves, and one has failed to boot too often.
    def hopeless?
      return false if @stopping || @workers.any?(&:serving?)

      @seats.each_value.any? { |seat| seat.failed_boots >= PATIENCE }
    end

    # @return [Integer] how often the worker of an index has ended unasked.
    def restarts(index) = @seats[index].restarts

    # What is to be done now. Each is said once: whoever asks must do it.
    #
    # @return [Array<Fork, Drain, Stop, Kill>]
    def due(now)
      overdue(now) + (@stopping ? dismissals(now) : retirements(now) + vacancies(now) + successions(now))
    end

    # @return [Float, nil] when {#due} will have something new, if nothing happens before.
    def next_deadline(now)
      deadlines = @workers.filter_map(&:deadline)
      unless @stopping
        vacant = (0...@size).reject { |index| occupied?(index) }
        deadlines.concat(vacant.map { |index| @seats[index].not_before })
        deadlines << @seats[outdated.first.index].not_before if outdated.any? && none?(&:booting?)
      end
      # What is past already waits for a slot, thus for an end, not for a time.
      deadlines.select { |deadline| deadline > now }.min
    end

    # A worker beside the regular ones, if a slot is free.
    #
    # @param kind [Symbol] not :regular.
    # @return [Fork, nil]
    def add_extra(kind, index, now)
      slot = free_slot or return
      Fork.new(book(slot:, index:, kind:, now:))
    end

    # A worker for requests that wait while all others are stuck.
    #
    # @return [Fork, nil] nil if there is no room for it.
    def relieve(now) = add_bounded(:relief, [@size, FEW_RELIEFS].max, now)

    # A worker for requests that hold Ruby's lock, and nothing else. There are at most as many as regular ones.
    #
    # @return [Fork, nil] nil if there is no room for it, or one is coming already.
    def add_lane(now)
      add_bounded(:lane, most_lanes, now) unless now < @lane_not_before || any? { |worker| worker.lane? && worker.booting? }
    end

    # @return [Integer] 0 for one worker: its app may count on being alone.
    def most_lanes = @size > 1 ? @size : 0

    # A lane worker has something to do.
    def lane_used(worker, now)
      worker.deadline = now + LANE_IDLE if worker.serving? && worker.generation >= @oldest_wanted
    end

    # Some worker is stuck: relief is needed for longer.
    def stuck(now)
      each { |worker| worker.deadline = now + CALM if worker.kind == :relief && worker.serving? }
    end

    # A worker may never come back from a request: it gets a successor, and drains once that one serves.
    #
    # @return [Array<Drain>, nil] what is to be done at once; nil if it is about to go already.
    def replace(worker, now)
      return if @stopping || !worker.serving? || worker.generation == REPLACED

      worker.generation = REPLACED
      worker.regular? ? [] : [drain(worker, now, handover: true)]
    end

    # A worker that was to be forked was.
    def forked(worker, pid, channel = nil)
      worker.pid = pid
      worker.channel = channel
    end

    # A worker serves.
    #
    # @return [Array<Drain>] its predecessor, which may go.
    def ready(worker, now)
      return [] unless worker.booting?

      enter(worker, :serving, now, { relief: CALM, lane: LANE_IDLE }[worker.kind])
      @seats[worker.index].served if worker.regular?
      predecessors = select { |other| succeeded?(other, worker) }
      predecessors.map { |predecessor| drain(predecessor, now, handover: true) }
    end

    # A worker has ended.
    #
    # @return [Symbol] :expected, if it was told to end; :boot, if it never served; :death.
    def ended(worker, now)
      @workers.delete(worker)
      return :expected if worker.leaving?

      @lane_not_before = now + LANE_DELAY if worker.lane? && worker.booting?
      @seats[worker.index].ended(worker, now) if worker.regular?
      return :death if worker.serving?

      # A restart that cannot boot is given up while there are others that serve: they stay.
      @oldest_wanted = 0 if serving_at(worker.index) && @seats[worker.index].failed_boots >= PATIENCE
      :boot
    end

    # Replaces all workers, one after the other: the successor first serves, then the other drains.
    def restart
      @generation += 1
      @oldest_wanted = @generation
      @seats.each_value(&:forget)
    end

    # @return [Boolean] false if there is no room for one more.
    def grow
      return false if @size + 2 > @slots

      @size += 1
      true
    end

    # @return [Boolean] false if it is the last one.
    def shrink
      return false if @size <= 1

      @size -= 1
      true
    end

    # All drain, and none is forked any more.
    #
    # @param handover [Boolean] whether others serve: then each connection gets another answer before it is closed.
    def stop(handover: false)
      @handover = handover unless @stopping
      @stopping ||= :drain
    end

    # All end at once.
    def stop_now = @stopping = :now

    private

    # A slot is left for a successor.
    def add_bounded(kind, most, now)
      return if @stopping || @workers.size + 2 > @slots

      index = ((0...most).to_a - select { |worker| worker.kind == kind }.map(&:index)).first
      add_extra(kind, index, now) if index
    end

    def overdue(now)
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

    def dismissals(now)
      affected = reject { |worker| worker.state == :stopping || (@stopping == :drain && worker.leaving?) }
      affected.map { |worker| @stopping == :drain ? drain(worker, now, handover: @handover) : stop_worker(worker, now) }
    end

    # Those above the number wanted.
    def retirements(now)
      surplus = select { |worker| !worker.leaving? && superfluous?(worker) }
      surplus.map { |worker| drain(worker, now, handover: true) }
    end

    # A lane worker of the old code goes with the others of its time; a new one comes when it is needed.
    def superfluous?(worker)
      return worker.index >= @size if worker.regular?

      worker.lane? && worker.serving? && worker.generation < @oldest_wanted
    end

    # Places without a worker.
    def vacancies(now)
      vacant = (0...@size).reject { |index| occupied?(index) }
      vacant.select { |index| @seats[index].not_before <= now }.filter_map { |index| fork_worker(index, now) }
    end

    # One successor at a time.
    def successions(now)
      return [] if @workers.any?(&:booting?)

      predecessor = outdated.first or return []
      return [] if @seats[predecessor.index].not_before > now

      [fork_worker(predecessor.index, now)].compact
    end

    def outdated = select { |worker| outdated?(worker) }.sort_by(&:index)

    def outdated?(worker) = worker.regular? && worker.serving? && worker.generation < @oldest_wanted

    def fork_worker(index, now)
      slot = free_slot or return
      Fork.new(book(slot:, index:, kind: :regular, now:))
    end

    def book(slot:, index:, kind:, now:)
      worker = Worker.new(slot:, index:, kind:, generation: @generation)
      enter(worker, :booting, now, @boot_timeout)
      @workers << worker
      worker
    end

    # The lowest one: figures stay where they were looked at.
    def free_slot = free_slots.first

    def occupied?(index)
      any? { |worker| worker.regular? && worker.index == index && !worker.leaving? }
    end

    def serving_at(index)
      find { |worker| worker.regular? && worker.index == index && worker.serving? }
    end

    def succeeded?(other, worker)
      other.regular? && worker.regular? && other.index == worker.index && other != worker && other.serving? &&
        other.generation < worker.generation
    end

    def drain(worker, now, handover: false)
      enter(worker, :draining, now, @drain_timeout)
      Drain.new(worker, handover)
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
