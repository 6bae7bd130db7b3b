# frozen_string_literal: true

module Fairlead
  # The processes of the workers: it does what {WorkerTable} says is due. It forks them, sends them messages, reads theirs, reaps
  # them, and replaces those that are stuck, have served for long, or have grown.
  class WorkerProcesses
    # What a request does that has kept a worker from its loop.
    KEPT_AWAY = { "blocked" => "has been in a call that blocks", "computing" => "has been computing",
                  "stuck" => "has been in a call that holds Ruby's lock" }.freeze
    # Seconds until connections are offered again to workers that take none.
    RETRY = 0.05
    private_constant :KEPT_AWAY, :RETRY

    # @return [String, nil] why no worker can start, once that has been tried often enough.
    attr_reader :hopeless

    # @param app [#call, nil] nil: each worker loads it.
    # @param metrics [Metrics] for a worker that answers at their path.
    # @yield in a worker: closes what belongs to its parent, {#close_in_child} included.
    def initialize(workers, configuration, listeners, app:, page:, budget:, metrics:, &close_in_worker)
      @workers = workers
      @configuration = configuration
      @listeners = listeners
      @app = app
      @page = page
      @budget = budget
      @metrics = metrics
      @close_in_worker = close_in_worker
      @handoff = ConnectionHandoff.new(workers.slots)
      @recycler = WorkerRecycler.for(configuration, page)
      @extra_workers = ExtraWorkers.new(workers, page, preload: configuration.preload) { |action| perform(action) }
    end

    # @return [String, nil] what is wrong with how they are replaced.
    def problem = @recycler&.problem

    # @return [Array<IO>] readable when {#process_events} should be called; the end of a child is an event too.
    def ios
      strays = receivers.empty? || @retry_at ? [] : @workers.free_slots.map { |slot| @handoff.receiver(slot) }
      @workers.filter_map { |worker| worker.channel&.io } + strays
    end

    # @return [Float, nil] when there will be something to do, if no event comes before.
    def deadline(now) = [@workers.next_deadline(now), @recycler&.deadline(now), @retry_at].compact.min

    def perform_due(now)
      @extra_workers.extend_deadlines(now)
      @workers.due(now).each { |action| perform(action) }
    end

    # Reads the messages of the workers, and reaps those that have ended.
    #
    # @yieldparam message [Messages::Stalled, Messages::Lasting, Messages::Shown, Messages::Pong, Crash]
    # @yieldparam pid [Integer] of its sender.
    def process_events(now, &)
      @workers.to_a.each { |worker| receive_from(worker, now, &) }
      worker, reason = @recycler&.due(@workers, now)
      replace(worker, reason) if worker
      # Only the workers: the app may wait for children of its own.
      @workers.select(&:pid).each { |child| reap(child, now, &) }
      pass_on_strays(now)
      stop_hopeless if @workers.hopeless?
    end

    # Requests of another worker, or of newer code, wait for a database connection.
    #
    # @param count [Integer] so many idle connections should be closed.
    def spare(slot, server, count) = post(Messages::Spare.new(server:, count:), @workers.find { |worker| worker.slot == slot })

    def reopen_logs = @workers.each { |worker| post(Messages::Reopen.new, worker) }

    def busy = @workers.sum { |worker| @page.get(worker.slot, :in_flight) }

    # Newer code serves. All leave together, so none hands its connections to the others.
    def retire
      @workers.each do |worker|
        @page.write(worker.slot, :state, WorkerState::LEAVING)
        @budget&.servers&.each { |server| spare(worker.slot, server, @configuration.database_connections) }
      end
      @workers.stop(handover: true)
    end

    # @return [Boolean] whether one that {#retire} has told to drain still takes connections.
    def leaving? = @workers.any? { |worker| @page.get(worker.slot, :state) == WorkerState::LEAVING }

    def close_in_child
      @budget&.close
      @workers.each { |worker| worker.channel&.close }
    end

    def close = @handoff.close

    private

    def perform(action)
      worker = action.worker
      case action
      when WorkerTable::Fork then fork_worker(worker)
      when WorkerTable::Drain then post(Messages::Drain.new(handover: action.handover), worker)
      when WorkerTable::Stop then post(Messages::Stop.new, worker)
      when WorkerTable::Kill then kill(worker)
      end
    end

    def post(message, worker) = worker&.channel&.post(message)

    def fork_worker(worker)
      ActiveRecord::LeaseCleanup.disconnect_before_fork
      SequelPools.release
      database = @budget&.admit(worker.slot)
      ours, theirs = Channel.pair
      write_to_page(worker)
      pid = ForkGuard.fork_own { exit(run_worker(worker, theirs, ours, database)) }
      @page.write(worker.slot, :pid, pid)
      @workers.forked(worker, pid, ours)
    rescue SystemCallError => error
      ours&.close
      worker.failure = "It could not be forked: #{error.message}."
      ended(worker, Clock.now)
    ensure
      theirs&.close
      database&.close
    end

    def write_to_page(worker)
      @page.clear(worker.slot)
      { index: worker.index, lane: worker.lane? ? 1 : 0, relief: worker.kind == :relief ? 1 : 0,
        restarts: @workers.restarts(worker.index), began_us: (Clock.now * 1_000_000).to_i, state: WorkerState::BOOTING }
        .each { |name, value| @page.write(worker.slot, name, value) }
    end

    # @return [Integer] the exit status.
    def run_worker(worker, channel, other_end, database)
      other_end.close
      @close_in_worker.call
      Worker.new(worker, channel:, configuration: @configuration, app: @app, listeners: @listeners, page: @page,
                         handoff: @handoff.pairs, metrics: @metrics, database:).run
    end

    def receive_from(worker, now, &)
      return unless worker.channel

      messages, closed = worker.channel.receive
      messages.each { |message| Log.contain(message) { handle(message, worker, now, &) } }
      close_channel(worker) if closed
    end

    def close_channel(worker)
      worker.channel&.close
      worker.channel = nil
    end

    def handle(message, worker, now)
      case message
      when Messages::Ready then ready(worker, now)
      when Messages::Failed then worker.failure = message.description
      when Messages::Relief then @extra_workers.add_relief(now)
      when Messages::Lane then @extra_workers.add_lane(now)
      when Messages::Stuck then replace(worker, stuck_reason(message))
      else yield message, worker.pid
      end
    end

    def ready(worker, now)
      @workers.ready(worker, now)
      @extra_workers.add_relief(now) if worker.kind == :relief
    end

    def replace(worker, reason)
      Log.say "Worker #{worker.index} (process #{worker.pid}) is being replaced: #{reason}." if @workers.replace(worker)
    end

    def stuck_reason(message)
      subject = message.request.empty? ? "a thread in it" : message.request
      "for #{@configuration.stuck_timeout} s (stuck_timeout) #{subject} #{KEPT_AWAY.fetch(message.kind)}"
    end

    def kill(worker)
      Log.say "Worker #{worker.index} (process #{worker.pid}) does not end: it is killed." unless worker.booting?
      Process.kill(:KILL, worker.pid) if worker.pid
    rescue Errno::ESRCH
      nil
    end

    def reap(worker, now, &)
      _, status = Process.wait2(worker.pid, Process::WNOHANG)
      return unless status

      receive_from(worker, now, &) # its last messages
      worker.failure ||= "It #{Signals.end_in_words(status)}."
      worker.refused = status.exitstatus == Worker::REFUSED
      crash = Crash.of(worker, status, @page.requests(worker.slot)) if status.signaled?
      yield crash, worker.pid if ended(worker, now, crash) && crash
    rescue Errno::ECHILD
      worker.failure ||= "It ended, and something else in this process took its status."
      ended(worker, now)
    end

    # @return [Boolean] whether it was unexpected, and was logged.
    def ended(worker, now, crash = nil)
      close_channel(worker)
      @budget&.remove(worker.slot)
      how = @workers.ended(worker, now)
      @page.write(worker.slot, :failures, 1) unless how == :expected
      @page.clear(worker.slot)
      return false if (how == :expected || @workers.stopping?) && !crash&.fault?

      report_end(worker, how, crash)
      true
    end

    # @return [Array<Integer>] the slots of the workers that get what was on its way to one that has ended.
    def receivers = @workers.select { |worker| worker.serving? && !worker.lane? }.map(&:slot)

    # A sibling may hand over a connection as its receiver ends; others were handed over while nobody served. If the receivers are
    # full, this is tried again a little later.
    def pass_on_strays(now)
      others = receivers
      free = @workers.free_slots
      free.each { |slot| @page.clear(slot) if @handoff.pass_on(slot, others).positive? }
      @retry_at = (now + RETRY if others.any? && free.any? { |slot| @handoff.waiting?(slot) })
    end

    def report_end(worker, how, crash)
      @last_ended = worker
      unless how == :boot
        text = "Worker #{worker.index} (process #{worker.pid}) ended unexpectedly. #{worker.failure}"
        return Log.say([text, *crash&.details].join("\n"))
      end

      # A boot that fails again and again is logged once.
      Log.say "Worker #{worker.index} could not start. #{worker.failure}" unless @logged_failure == worker.failure
      @logged_failure = worker.failure
    end

    def stop_hopeless
      failure = @last_ended.failure
      @hopeless = @last_ended.refused ? failure : "No worker could start, in #{WorkerTable::PATIENCE} tries. #{failure}"
      @workers.stop_now
    end
  end
end
