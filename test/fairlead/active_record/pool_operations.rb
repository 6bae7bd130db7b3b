# frozen_string_literal: true

require "active_record"
require "pg"
require_relative "interruptions"

# Within a server: what can be done with a pool, each interrupted at every wait ({Interruptions}); and whether pool, budget
# and database agree afterwards.
class PoolOperations
  class Record < ActiveRecord::Base
    self.abstract_class = true
  end

  class Other < ActiveRecord::Base
    self.abstract_class = true
  end

  # With how many connections at most.
  SIZES = { "waits in line" => 1 }.freeze

  # @param url [String] of PostgreSQL.
  # @param name [String] what is done; where it "waits at the gate", the role of the URL may have one connection.
  def initialize(url, name)
    @name = name
    @url = "#{url}?application_name=#{name.tr(" ", "-")}&checkout_timeout=20&pool=#{SIZES.fetch(name, 2)}"
    Record.establish_connection(@url)
    Other.establish_connection(@url)
    @pool, @other = [Record, Other].map(&:connection_pool)
    @database = PG.connect(ENV.fetch("DATABASE_URL"))
    @holders = []
  end

  # @return [Array(Integer, Array<String>)] at how many waits it was interrupted, and what is broken then.
  def sweep(kind, **)
    before, operation, after = parts
    broken = []
    waits = Interruptions.new(@pool, kind, **).sweep(before, operation, after) do |number|
      broken.concat(damage.map { |one| "#{number}: #{one}" })
      break if broken.any?
    end
    [waits, broken]
  ensure
    [Record, Other].each(&:remove_connection)
    @database.close
  end

  private

  def parts
    use = ->(_) { @pool.with_connection { |connection| connection.execute("SELECT 1") } }
    case @name
    when "opens a connection" then [method(:close), use, nil]
    when "waits in line" then [method(:hold_until_somebody_waits), use, method(:release)]
    when "is called to open one" then [method(:hold), use, method(:release)]
    when "waits at the gate" then [method(:hold_until_the_gate_is_wanted), use, method(:release)]
    when "checks in" then [method(:check_out), @pool.method(:checkin), nil]
    when "gives up what is recalled" then [method(:check_out_recalled), @pool.method(:checkin), method(:let_keep)]
    when "ends a request" then [method(:lease_two), ->(_) { Fairlead::ActiveRecord::LeaseCleanup.release }, nil]
    when "removes" then [method(:check_out), @pool.method(:remove), :disconnect!.to_proc]
    when "reaps" then [method(:die_with_one), ->(_) { @pool.reap }, nil]
    when "disconnects all" then [method(:hold_until_somebody_waits), ->(_) { @pool.disconnect! }, method(:release)]
    when "flushes" then [method(:be_idle), ->(_) { @pool.flush! }, nil]
    when "spares what is idle" then [method(:be_idle), ->(_) { budget.give_up_idle(1) }, nil]
    end
  end

  # The role of one connection has none for the other.
  def pools = @name == "waits at the gate" ? [@pool] : [@pool, @other]

  # Of a pool that is not ActiveRecord's own.
  def budget = (@pool.fairlead_budget if @pool.respond_to?(:fairlead_budget))

  def close = @pool.disconnect!

  def check_out = @pool.checkout.tap { |connection| connection.execute("SELECT 1") }

  def check_out_recalled
    budget.define_singleton_method(:recalled?) { true }
    check_out
  end

  def let_keep(_) = budget.singleton_class.remove_method(:recalled?)

  def lease_two = [@pool, @other].each { |pool| lease(pool).execute("SELECT 1") }

  def lease(pool) = pool.respond_to?(:lease_connection) ? pool.lease_connection : pool.connection # before 7.2

  def die_with_one = Async { check_out }.wait

  def be_idle = @pool.checkin(check_out)

  # @yieldreturn [Boolean] whether it may give it back.
  def hold(&given_back)
    close
    @over = false
    held = Thread::Queue.new
    @holders = [task = Async::Task.new(Fiber.scheduler) do
      connection = check_out
      held << true
      sleep(0.0005) until @over || given_back&.call
      @pool.checkin(connection)
    end]
    task.run
    held.pop
  end

  # And have another wait behind.
  def hold_until_somebody_waits
    hold do
      next if @pool.num_waiting_in_queue.zero?

      @holders << Async { @pool.with_connection { |connection| connection.execute("SELECT 1") } }
      true
    end
  end

  def hold_until_the_gate_is_wanted = hold { @pool.fairlead_gate.wanted? }

  def release(_)
    @over = true
    @holders.each { |holder| Timeout.timeout(10) { holder.wait } }
  end

  # @return [Array<String>]
  def damage
    return ["the lock is held"] unless soon { !@pool.instance_variable_get(:@mon_data).mon_locked? }

    pools.flat_map { |pool| damage_of(pool) } + damage_of_budget
  end

  def damage_of(pool)
    stat = pool.stat.slice(:busy, :dead, :waiting)
    stat.merge!(%i[@now_connecting @maintaining @threads_blocking_new_connections].to_h { |name| [name, pool.instance_variable_get(name).to_i] })
    stat.merge!(in_line: pool.fairlead_waiters.size, opening: pool.fairlead_waiters.opening) if budget
    wrong = stat.reject { |_, count| count.zero? }.map { |name, count| "#{name}: #{count}" }
    Timeout.timeout(10) { pool.with_connection { |connection| connection.execute("SELECT 1") } }
    wrong
  rescue ActiveRecord::ActiveRecordError, Timeout::Error => error
    [*wrong, "no connection: #{error.message}"]
  end

  # The database notices a little later that a connection is closed.
  def damage_of_budget
    connections = pools.flat_map(&:connections)
    wrong = []
    wrong << "the budget counts #{budget.open} of #{connections.size}" unless budget.nil? || budget.open == connections.size
    open = connections.count { |connection| connection.instance_variable_get(:@raw_connection)&.finished? == false }
    wrong << "the database has #{in_database}, the pools #{open}" unless soon { in_database == open }
    wrong
  end

  def in_database
    @database.exec_params("SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", [@name.tr(" ", "-")]).getvalue(0, 0).to_i
  end

  def soon
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 10
    until (true_now = yield) || Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
      sleep 0.002
    end
    true_now
  end
end
