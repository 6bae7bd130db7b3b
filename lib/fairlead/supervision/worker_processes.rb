# frozen_string_literal: true

module Fairlead
  class WorkerTable
    # The processes of the workers: what the table ({WorkerTable}) says is due is done here. They are forked, told, heard
    # and reaped; those that are stuck, have served for long, or have grown are replaced.
    class Processes
      # What a request does that has kept a worker from its loop.
      KEPT_AWAY = { "blocked" => "has been in a call that blocks", "computing" => "has been computing",
                    "stuck" => "has been in a call that holds Ruby's lock" }.freeze
      # What the shared page says of a worker that leaves.
      LEAVES = 3
      # Seconds until heirs who take nothing are looked at again.
      FULL = 0.05
      private_constant :KEPT_AWAY, :LEAVES, :FULL

      # @return [String, nil] why no worker can start, once that has been tried often enough.
      attr_reader :hopeless

      # @param workers [WorkerTable]
      # @param configuration [Configuration]
      # @param listeners [Array<Listener>]
      # @param app [#call, nil] nil: each worker loads it.
      # @param page [SharedPage]
      # @param budgets [Budgets, nil]
      # @yield in a worker: leaves behind what is its parent's, {#leave} included.
      def initialize(workers, configuration, listeners, app:, page:, budgets:, &leave)
        @workers = workers
        @configuration = configuration
        @listeners = listeners
        @app = app
        @page = page
        @budgets = budgets
        @leave = leave
        @handoff = ConnectionHandoff.new(workers.slots)
        @recycling = WorkerRecycler.for(configuration, page)
        @reinforcements = ExtraWorkers.new(workers, page, preload: configuration.preload)
      end

      # @return [Array<IO>] readable when {#take_in} should be called; as it should be when a child has ended.
      def ios
        strays = heirs.empty? || @room_at ? [] : @workers.free_slots.map { |slot| @handoff.receiver(slot) }
        @workers.filter_map { |worker| worker.channel&.io } + strays
      end

      # @return [Float, nil] when there will be something to do, if nothing happens before.
      def deadline(now) = [@workers.next_deadline(now), @recycling&.deadline(now), @room_at].compact.min

      # Does what is due.
      def attend(now)
        @reinforcements.attend(now)
        perform(@workers.due(now))
      end

      # Hears what they say, and who has ended.
      #
      # @yieldparam message [Messages::Stalled, Messages::Lasting, Messages::Shown] what is not for this.
      # @yieldparam pid [Integer] who says it.
      def take_in(now, &)
        @workers.to_a.each { |worker| listen(worker, now, &) }
        worker, why = @recycling&.due(@workers, now)
        replace(worker, why, now) if worker
        # Only its own: other children of this process are not its business.
        @workers.select(&:pid).each { |child| reap(child, now, &) }
        pass_on_strays(now)
        give_up if @workers.hopeless?
      end

      # Requests of another worker, or of newer code, wait for a database connection.
      #
      # @param server [Integer] a database server
      # @param count [Integer] so many idle connections should be closed.
      def spare(slot, server, count)
        @workers.find { |worker| worker.slot == slot }&.channel&.tell(Messages::Spare.new(server:, count:))
      end

      def reopen_logs = @workers.each { |worker| worker.channel&.tell(Messages::Reopen.new) }

      # @return [Integer] how many requests run.
      def busy = @workers.sum { |worker| @page.get(worker.slot, :in_flight) }

      # Newer code serves. All leave together: none shall give the others what it has.
      def retire
        @workers.each do |worker|
          @page.write(worker.slot, :state, LEAVES)
          @budgets&.servers&.each { |server| spare(worker.slot, server, @configuration.database_connections) }
        end
        @workers.stop(handover: true)
      end

      # In any child.
      def leave
        @budgets&.close
        @workers.each { |worker| worker.channel&.close }
      end

      # Once all have ended.
      def close = @handoff.close

      private

      def perform(actions)
        actions.each do |action|
          worker = action.worker
          case action
          when Fork then fork_worker(worker)
          when Drain then worker.channel&.tell(Messages::Drain.new(handover: action.handover))
          when Stop then worker.channel&.tell(Messages::Stop.new)
          when Kill then kill(worker)
          end
        end
      end

      def fork_worker(worker)
        ActiveRecord::Forks.release
        SequelPools.release
        database = @budgets&.admit(worker.slot)
        ours, theirs = Messages::Channel.pair
        introduce(worker)
        pid = Process.fork { exit(become(worker, theirs, ours, database)) }
        @page.write(worker.slot, :pid, pid)
        @workers.forked(worker, pid, ours)
      rescue SystemCallError => error
        ours&.close
        worker.failure = "It could not be forked: #{error.message}."
        ended(worker, monotonic)
      ensure
        theirs&.close
        database&.close
      end

      # In the page, to who looks at it.
      def introduce(worker)
        slot = worker.slot
        @page.clear(slot)
        @page.write(slot, :index, worker.index)
        @page.write(slot, :lane, worker.lane? ? 1 : 0)
        @page.write(slot, :relief, worker.kind == :relief ? 1 : 0)
        @page.write(slot, :restarts, @workers.restarts(worker.index))
        @page.write(slot, :began_us, (monotonic * 1_000_000).to_i)
        @page.write(slot, :state, 1)
      end

      # In the child.
      #
      # @return [Integer] the exit status.
      def become(worker, control, other_end, database)
        other_end.close
        @leave.call
        Fairlead::Worker.new(worker, control:, configuration: @configuration, app: @app, listeners: @listeners,
                                     page: @page, channels: @handoff.pairs, database:).run
      end

      def listen(worker, now, &)
        return unless worker.channel

        messages, gone = worker.channel.receive
        messages.each { |message| hear(worker, message, now, &) }
        return unless gone

        worker.channel.close
        worker.channel = nil
      end

      def hear(worker, message, now)
        case message
        when Messages::Ready then ready(worker, now)
        when Messages::Failed then worker.failure = message.description
        when Messages::Relief then relieve(now)
        when Messages::Lane then @reinforcements.open_lane(now) { |action| perform([action]) }
        when Messages::Stuck then replace(worker, stuck_since(message), now)
        else yield message, worker.pid
        end
      end

      def ready(worker, now)
        perform(@workers.ready(worker, now))
        relieve(now) if worker.kind == :relief
      end

      def relieve(now) = @reinforcements.relieve(now) { |action| perform([action]) }

      def replace(worker, why, now)
        actions = @workers.replace(worker, now) or return
        Log.say "Worker #{worker.index} (process #{worker.pid}) is being replaced: #{why}."
        perform(actions)
      end

      def stuck_since(message)
        who = message.request.empty? ? "a thread in it" : message.request
        "for #{@configuration.stuck_timeout} s (stuck_timeout) #{who} #{KEPT_AWAY.fetch(message.kind)}"
      end

      def kill(worker)
        unless worker.booting?
          Log.say "Worker #{worker.index} (process #{worker.pid}) does not end: it is killed."
        end
        Process.kill(:KILL, worker.pid) if worker.pid
      rescue Errno::ESRCH
        nil
      end

      def reap(worker, now, &)
        _, status = Process.wait2(worker.pid, Process::WNOHANG)
        return unless status

        listen(worker, now, &) # what it said last
        worker.failure ||= how_it_ended(status)
        worker.refused = status.exitstatus == Fairlead::Worker::REFUSED
        ended(worker, now)
      rescue Errno::ECHILD
        worker.failure ||= "It ended, and somebody else in this process took its status."
        ended(worker, now)
      end

      def how_it_ended(status)
        return "It ended with status #{status.exitstatus}." unless status.signaled?

        "It was ended by SIG#{Signal.signame(status.termsig)}."
      end

      def ended(worker, now)
        worker.channel&.close
        worker.channel = nil
        @budgets&.leave(worker.slot)
        @page.clear(worker.slot)
        how = @workers.ended(worker, now)
        report(worker, how) unless how == :expected || @workers.stopping?
      end

      # Who are given what was on its way to a worker that has ended.
      #
      # @return [Array<Integer>] their slots.
      def heirs = @workers.select { |worker| worker.serving? && !worker.lane? }.map(&:slot)

      # Who sends something may have looked before the worker ended; and what came while nobody served is there, too. While
      # the heirs take nothing, they are looked at now and then.
      def pass_on_strays(now)
        others = heirs
        free = @workers.free_slots
        free.each { |slot| @page.clear(slot) if @handoff.pass_on(slot, others).positive? }
        @room_at = (now + FULL if others.any? && free.any? { |slot| @handoff.waits?(slot) })
      end

      def report(worker, how)
        @last = worker
        return Log.say("Worker #{worker.index} (process #{worker.pid}) has ended unasked. #{worker.failure}") if
          how == :death

        # A boot that fails again and again is told once.
        Log.say "Worker #{worker.index} could not start. #{worker.failure}" unless @told == worker.failure
        @told = worker.failure
      end

      def give_up
        @hopeless = @last.refused ? @last.failure : "No worker could start, in #{PATIENCE} tries. #{@last.failure}"
        @workers.stop_now
      end

      def monotonic = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
