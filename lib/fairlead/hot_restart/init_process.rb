# frozen_string_literal: true

module Fairlead
  # The first process of a server with workers. It has the process id by which the server is known and the listening sockets,
  # passes signals on, and ends with the status of the server. As process 1 of a container it also reaps processes that have lost
  # their parent.
  #
  # Its children are the generations of the server's code, each a supervisor with its workers. A hot restart runs the server's
  # command once more, with the listening sockets. Once the new generation serves, the older one retires; if the new one cannot
  # serve, nothing changes.
  class InitProcess
    SIGNALS = %i[TERM INT HUP TTIN TTOU USR1 USR2 CHLD].freeze

    # @!attribute channel [Channel, nil] to its supervisor; nil once that has closed it.
    # @!attribute state [Symbol] :booting, :serving or :retiring
    # @!attribute failure [String, nil] why it cannot serve, in its own words
    # @!attribute retained [Messages::RetainedConnections, nil] the last one from it
    Generation = Struct.new(:pid, :channel, :state, :failure, :retained) do
      def booting? = state == :booting
      def serving? = state == :serving
    end
    private_constant :SIGNALS, :Generation

    # @param start_command [StartCommand, nil] nil: it is unknown, and there is no hot restart.
    # @yieldparam link [ParentLink] in the child that becomes the first supervisor.
    # @yieldreturn [Integer] its exit status.
    def initialize(configuration, start_command, &first)
      @configuration = configuration
      @start_command = start_command
      @first = first
      @pid_file = PidFile.new(configuration.pidfile, at: configuration.source(:pidfile))
      @restart_file = RestartFile.new(start_command.folder) if start_command
      @listeners = Listener::InheritedSockets.take
      @service_manager = ServiceManager.new
      @generations = []
      @newest = -1 # each start counts, also one that fails
      @served = @restart_pending = @stopping = false
      @status = 0
    end

    # @return [Integer] the exit status.
    # @raise [ConfigurationError] if the server runs already.
    def run
      ForkGuard.holders << self
      @pid_file.write
      Log.open(@configuration)
      @signals = Signals.new(*SIGNALS)
      start_generation
      Process.setproctitle("fairlead: init [#{@configuration.tag}]")
      wait until @generations.empty?
      @status
    ensure
      ForkGuard.holders.delete(self)
      @listeners.each(&:close)
      @pid_file.remove
      @signals&.restore
    end

    # Drains, and ends {#run}. May be called from any thread.
    def stop = @signals&.record(:TERM)

    # @api private
    # In a child of an app that this process has loaded (`rackup`).
    def close_channels = [*@generations.map(&:channel), *@listeners, @tickets].compact.each(&:close)

    private

    def wait
      IO.select([@signals.io, *@generations.filter_map { |generation| generation.channel&.io }], nil, nil, RestartFile::INTERVAL)
      @signals.take.each { |signal| Log.contain(signal) { handle_signal(signal) } }
      restart("#{RestartFile::PATH} has been touched. ") if @restart_file&.touched?
      reap
      @generations.dup.each { |generation| receive_from(generation) }
      restart if @restart_pending && !candidate
    end

    # Passes a signal on, as a message: that arrives also if the supervisor boots yet.
    def handle_signal(signal)
      case signal
      when :CHLD then nil
      when :USR2 then restart
      when :TERM, :INT then stop_generations(signal)
      when :USR1
        Log.reopen
        post(Messages::Signaled.new(signal), @generations)
      when :HUP then post(Messages::Signaled.new(signal), @generations.select { |one| one.serving? || one.booting? })
      else post(Messages::Signaled.new(signal), [serving || candidate].compact)
      end
    end

    # By message, since a service manager may send the signal to all processes. A generation that boots may not read its
    # messages yet, so it gets the signal as well.
    def stop_generations(signal)
      stop_listening
      @told_to_stop = true
      @generations.each do |generation|
        told = generation.channel&.post(Messages::Signaled.new(signal))
        kill(signal, generation) if generation.booting? || !told
      end
    end

    # Starts new code. A restart that is asked for while a generation boots begins after that.
    def restart(reason = "")
      return if @stopping

      @restart_pending = !candidate.nil?
      return if @restart_pending

      Log.say "#{reason}New code is being started."
      @service_manager.reloading
      start_generation
    end

    # An app that this process has loaded (`rackup`) may wait for children of its own.
    def reap
      (Process.pid == 1 ? [-1] : @generations.map(&:pid)).each do |child|
        while (pid, status = Process.wait2(child, Process::WNOHANG))
          ended(pid, status)
        end
      rescue Errno::ECHILD
        next
      end
    end

    def ended(pid, status)
      generation = @generations.find { |one| one.pid == pid } or return
      receive_from(generation) # its last messages
      generation.channel&.close
      @generations.delete(generation)
      post(generation.retained.with(servers: [], rest: 0), @generations) if generation.retained
      generation.failure ||= "The new process #{Signals.end_in_words(status)}; its messages are above." if generation.booting?
      return fail_start(generation.failure, status) if generation.booting?
      return unless generation.serving?

      Log.say generation.failure if generation.failure
      @status = exit_status(status)
      stop_generations(:TERM) if @stopping && !@told_to_stop # the serving supervisor was told to end by a signal of its own
    end

    def candidate = @generations.find(&:booting?)

    def serving = @generations.find(&:serving?)

    def start_generation
      @newest += 1
      post(Messages::Starting.new(@newest), [serving].compact)
      return fail_start("Hot restart is unavailable: the start command is unknown.") unless @first || @start_command

      ours, theirs = Channel.pair
      @generations << Generation.new(boot(ours, theirs), ours, :booting)
    rescue SystemCallError => error
      ours&.close
      fail_start("The command cannot be run: #{error.message}.")
    ensure
      theirs&.close
    end

    # The first supervisor is a fork. Those that follow run the command again, with the code that is there then.
    def boot(ours, theirs)
      link = { pid: Process.pid, generation: @newest, control: theirs.io.fileno, watchdog: @service_manager.watchdog,
               listeners: listeners.map { |one| [one.io.fileno, one.asked, one.owned] }, tickets: @tickets&.fileno,
               retained: @generations.filter_map { |one| one.retained&.to_h } }
      ios = [theirs.io, @tickets, *listeners.map(&:io)].compact
      return @start_command.spawn_copy({ ParentLink::VARIABLE => Messages.json(link) }, ios) unless @first

      first, @first = @first, nil
      ForkGuard.fork_own do
        @signals.restore
        ours.close
        [theirs, *listeners].each { |one| one.io.autoclose = false } # the link opens these descriptors again
        exit(first.call(ParentLink.new(**link)))
      end
    end

    def listeners = @listeners.reject(&:closed?)

    def receive_from(generation)
      return unless generation.channel

      messages, closed = generation.channel.receive
      messages.each { |message| Log.contain(message) { handle_message(message, generation) } }
      return unless closed

      generation.channel.close
      generation.channel = nil
    end

    def handle_message(message, generation)
      index = @generations.index(generation)
      case message
      when Messages::Serving then take_over(generation, message.listeners)
      when Messages::Failed then generation.failure = message.description
      when Messages::Notify then @service_manager.pass_on(message.text) if generation.serving?
      when Messages::Restart then restart
      when Messages::RetainedConnections then post(generation.retained = message, @generations.drop(index + 1))
      when Messages::ConnectionRequest then post(message, @generations.take(index))
      when Messages::Stopping then stop_listening if generation.serving?
      end
    end

    def take_over(generation, addresses)
      Log.say "The new code serves, as process #{generation.pid}." if @served
      @served = true
      ios = generation.channel.take_ios
      replace_listeners(ios.shift(addresses.size).zip(addresses).map { |io, (asked, owned)| Listener.new(io, asked:, owned:) })
      @tickets&.close
      @tickets = ios.first
      retire(serving) if serving
      generation.state = :serving
      @service_manager.ready(@listeners.map(&:uri))
    end

    def retire(generation)
      generation.state = :retiring
      post(Messages::Retire.new, [generation])
    end

    # The file of a socket that is still served stays.
    def replace_listeners(others)
      paths = others.map(&:path)
      @listeners.each do |listener|
        listener.owner = nil if paths.include?(listener.path)
        listener.close
      end
      @listeners = others
    end

    def post(message, generations) = generations.each { |generation| generation.channel&.post(message) }

    # No more connections come in that no worker would accept.
    def stop_listening
      @stopping = true
      @listeners.each(&:close)
    end

    def kill(signal, generation)
      Process.kill(signal, generation.pid)
    rescue Errno::ESRCH
      nil
    end

    def fail_start(description, status = nil)
      @status = status ? exit_status(status) : 1 unless @served
      return if @stopping
      return warn("fairlead: #{description}") unless @served

      Log.say "The new code could not be started; the old code continues to serve.\n#{description}"
      post(Messages::Failed.new(description), [serving].compact)
      @service_manager.ready(@listeners.map(&:uri))
    end

    def exit_status(status) = status.exitstatus || (128 + status.termsig)
  end
end
