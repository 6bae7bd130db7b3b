# frozen_string_literal: true

module Fairlead
  # Collects the stalls of all workers, logs them, and answers the commands that ask for the server's state. Runs in the supervisor, or
  # in the only process.
  class ControlServer
    # The most stalls in an answer.
    MOST = 40
    LIMITS = %i[in_flight database_connections].freeze
    private_constant :MOST, :LIMITS

    # @param pid [Integer] by which the server is known
    # @param generation [Integer] how many times new code was started before
    # @param named [String, nil] the folder as a link named it at the start; the link may lead elsewhere by now
    # @param address [String, nil] see {ControlSocket.new_address}
    # @param certificates [Certificates, nil]
    # @yieldreturn [Hash] `processes:` beside the workers, `{ name => process id }`, and `problems:` with them, in sentences
    def initialize(configuration, addresses, pid: Process.pid, generation: 0, named: nil, address: ControlSocket.new_address,
                   certificates: nil, &processes)
      @pid = pid
      @restarts = { generation:, begun: generation, serving: false, failed: nil, failure: nil }
      @configuration = configuration
      @certificates = certificates
      @started_at = Time.now.to_f
      @pool_reports = PoolReports.new
      @request_reports = RequestReports.new
      @addresses = addresses
      @folder = Dir.pwd
      @named = named
      @stalls = Stall::Aggregator.new
      @lock = Thread::Mutex.new
      @processes = processes
      @socket = ControlSocket.open(address:) { answer } if address
    end

    attr_reader :pool_reports, :request_reports

    # @return [Array<IO>] readable when {#answer_clients} should be called.
    def ios = @socket ? @socket.ios : []

    # (see ControlSocket#answer_clients)
    def answer_clients(&) = @socket&.answer_clients(&)

    def add(stall)
      line = @lock.synchronize { @stalls.add(stall) }
      Log.say "Worker process #{stall.pid}: #{line}" if line
    rescue StandardError => error # a worker's message must not end the supervisor
      Log.say "A stall could not be reported: #{error.full_message(highlight: false)}"
    end

    def handle(message, pid)
      case message
      when Messages::Stalled then add(Stall.new(**message.stall.transform_keys(&:to_sym)))
      when Messages::Lasting then add_lasting(message, pid)
      when Messages::Shown
        pool_reports.record(pid, message.pools)
        request_reports.record(pid, message.requests)
      when Crash then @crash = message
      end
    end

    def serving! = @restarts[:serving] = true

    def restart_begun(generation) = @restarts[:begun] = generation

    def restart_failed(description)
      @restarts.update(failed: @restarts[:begun], failure: description)
    end

    def open? = !@socket.nil?

    def close
      @socket&.close
      @socket = nil
    end

    private

    def add_lasting(message, pid)
      method, path = message.request.split(" ", 2)
      add(Stall::Snapshot.stall(message.to_h.merge(lasting: true), pid:, method:, path:))
    end

    def answer
      stalls = @lock.synchronize { @stalls.worst(MOST) }
      { pid: @pid, supervisor: Process.pid, restarts: @restarts, folder: @folder, named: @named, tag: @configuration.tag,
        addresses: @addresses, limit: @configuration.stall_report, memory_limit: MemoryLimit.of(Process.pid)&.to_h, stalls:,
        crash: @crash&.to_h, processes: {}, problems: [], **@processes&.call, pool_totals: pool_reports.totals, status: }
    end

    def status
      stats = Fairlead.stats
      {
        version: VERSION, ruby: RUBY_VERSION, yjit: yjit?, environment: @configuration.environment,
        started_at: @started_at, limits:,
        **stats, workers: pool_reports.add_to(stats[:workers]), times: Fairlead.page&.times, route_times: Fairlead.page&.route_times,
        requests: request_reports.of(stats[:workers]), certificates: @certificates&.report || []
      }
    end

    # A process that serves itself is not replaced.
    def limits
      { **LIMITS.to_h { |name| [name, @configuration.public_send(name)] },
        recycle_memory: (@configuration.recycle_memory if @configuration.workers.positive?) }
    end

    # @return [Boolean, nil] nil: only the workers know, since each one loads the app.
    def yjit?
      return unless @configuration.preload || @configuration.workers.zero?

      defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled? ? true : false
    end
  end
end
