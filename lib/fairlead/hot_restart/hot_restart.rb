# frozen_string_literal: true

module Fairlead
  # The generations of a server's code, as its {InitProcess} sees them: each is a supervisor with its workers. A hot restart
  # runs the server's command once more, with the listening sockets. Once the new generation serves, the older one retires;
  # if the new one cannot serve, nothing changes.
  class HotRestart
    # @!attribute channel [Channel, nil] to its supervisor; nil once that has closed it.
    # @!attribute state [Symbol] :booting, :serving or :retiring
    # @!attribute failure [String, nil] why it cannot serve, in its own words
    # @!attribute retained [Messages::RetainedConnections, nil] the last one from it
    Generation = Struct.new(:pid, :channel, :state, :failure, :retained) do
      def booting? = state == :booting
      def serving? = state == :serving
    end
    private_constant :Generation

    attr_reader :status

    # @param start_command [StartCommand, nil] nil: it is unknown, and there is no hot restart.
    # @yieldparam link [ParentLink] in the child that becomes the first supervisor.
    # @yieldreturn [Integer] its exit status.
    def initialize(start_command, listeners, service_manager, &first)
      @start_command = start_command
      @listeners = listeners
      @service_manager = service_manager
      @first = first
      @generations = []
      @newest = -1 # each start counts, also one that fails
      @served = @restart_pending = @stopping = false
      @status = 0
    end

    def finished? = @generations.empty?

    def start = start_generation

    # Starts new code. A restart that is asked for while a generation boots begins after that.
    def restart(reason = "")
      return if @stopping
      return @restart_pending = true if candidate

      Log.say "#{reason}New code is being started."
      @service_manager.reloading
      start_generation
    end

    # @return [Array<IO>] readable when {#process_messages} should be called.
    def ios = @generations.filter_map { |generation| generation.channel&.io }

    def process_messages
      @generations.dup.each { |generation| receive_from(generation) }
      return unless @restart_pending && !candidate

      @restart_pending = false
      restart
    end

    # @return [Array<Integer>] the children to wait for.
    def pids = @generations.map(&:pid)

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
      forward(:TERM) if @stopping && !@told_to_stop # the serving supervisor was told to end by a signal of its own
    end

    # Passes a signal on, as a message: that arrives also if the supervisor boots yet.
    def forward(signal)
      case signal
      when :TERM, :INT then stop(signal)
      when :USR1 then post(Messages::Signaled.new(signal), @generations)
      when :HUP then post(Messages::Signaled.new(signal), @generations.select { |one| one.serving? || one.booting? })
      else post(Messages::Signaled.new(signal), [serving || candidate].compact)
      end
    end

    def close_listeners = @listeners.each(&:close)

    private

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
               listeners: listeners.map { |one| [one.io.fileno, one.asked, one.owned] },
               retained: @generations.filter_map { |one| one.retained&.to_h } }
      return @start_command.spawn_copy({ ParentLink::VARIABLE => Messages.json(link) }, [theirs.io, *listeners.map(&:io)]) unless @first

      first, @first = @first, nil
      Process.fork do
        ours.close
        [theirs, *listeners].each { |one| one.io.autoclose = false } # the link opens these descriptors again
        exit(first.call(ParentLink.new(**link)))
      end
    end

    def listeners = @listeners.reject(&:closed?)

    def receive_from(generation)
      return unless generation.channel

      messages, closed = generation.channel.receive
      messages.each { |message| handle(message, generation) }
      return unless closed

      generation.channel.close
      generation.channel = nil
    end

    def handle(message, generation)
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
      replace_listeners(generation.channel.take_ios.zip(addresses).map { |io, (asked, owned)| Listener.new(io, asked:, owned:) })
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

    # By message, since a service manager may send the signal to all processes. A generation that boots may not read its
    # messages yet, so it gets the signal as well.
    def stop(signal)
      stop_listening
      @told_to_stop = true
      @generations.each do |generation|
        told = generation.channel&.post(Messages::Signaled.new(signal))
        kill(signal, generation) if generation.booting? || !told
      end
    end

    # No more connections come in that no worker would accept.
    def stop_listening
      @stopping = true
      close_listeners
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
