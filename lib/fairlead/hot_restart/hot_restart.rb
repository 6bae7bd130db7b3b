# frozen_string_literal: true

require_relative "../parts"

module Fairlead
  # The supervisors of a server, seen from its first process ({InitProcess}). For a hot restart it runs the server's command
  # once more, with the listening sockets, and once the new supervisor's workers serve, the older one is told to leave. If
  # the new one cannot serve, nothing changes.
  #
  # The first process stays the first: whoever started it (a service manager, a container, a shell) goes on knowing the
  # server by its process id.
  class HotRestart
    # A supervisor that was started.
    # @!attribute state [Symbol] :booting, :serving or :leaving.
    # @!attribute kept [Messages::Keeps, nil] the last that it has said.
    Master = Struct.new(:pid, :channel, :state, :failure, :kept)

    # @return [Array<Listener>] of whoever serves.
    def listeners = @listeners.reject(&:closed?)
    # @return [Array<Master>]
    attr_reader :masters
    # @return [Integer] of the newest that serves, from 0.
    attr_reader :generation
    # @return [Integer] with which exit status the server has ended.
    attr_reader :status
    # @param launch [StartCommand]
    # @param listeners [Array<Listener>]
    # @param notifier [ServiceManager]
    # @yieldparam parent [ParentLink] in the child that becomes the first supervisor.
    # @yieldreturn [Integer] its exit status.
    def initialize(launch, listeners, notifier, &first)
      @launch = launch
      @listeners = listeners
      @notifier = notifier
      @first = first
      @masters = []
      @generation = nil
      @status = 0
      @again = @stopping = false
    end

    # Starts a supervisor: the first, or one of new code. While one boots, the next one waits for it.
    def renew
      return @again = true if candidate
      return if @stopping

      Log.say "New code is being started." if @generation
      @notifier.reloading if @generation
      start
    end

    # @return [Array<IO>] readable when {#attend} should be called; as it should be when a child has ended.
    def ios = @masters.filter_map { |master| master.channel&.io }

    # Takes in what has been said.
    def attend
      @masters.dup.each { |master| hear(master) if master.channel }
      return unless @again && !candidate

      @again = false
      renew
    end

    # A child of this process has ended.
    def ended(pid, status)
      master = @masters.find { |one| one.pid == pid } or return
      hear(master) if master.channel # what it said last
      master.channel&.close
      @masters.delete(master)
      pass_on(master.kept.with(servers: [], rest: 0), @masters) if master.kept
      return give_up(master.failure || how_it_ended(status), status) if master.state == :booting

      return unless master.state == :serving

      @status = code(status)
      dismiss(:TERM) if @stopping && !@dismissed # it has been told by itself: what boots is not needed either
    end

    # Passes a signal on: to all if it means the end, or the logs, else to the one that serves. Code that boots would be ended by
    # USR1: it is told by message, and reopens what it has once it serves.
    def forward(signal)
      case signal
      when :TERM, :INT then dismiss(signal)
      when :USR1 then pass_on(Messages::Reopen.new, @masters)
      else serving&.then { |master| kill(signal, master) }
      end
    end

    private

    # Descriptor, address as it was asked for, inode.
    def described_listeners = listeners.map { |one| [one.io.fileno, one.asked, one.owned] }

    def candidate = @masters.find { |master| master.state == :booting }

    def serving = @masters.find { |master| master.state == :serving }

    def start
      ours, theirs = Messages::Channel.pair
      about = { pid: Process.pid, generation: @generation.to_i + (@generation ? 1 : 0), control: theirs.io.fileno,
                watchdog: @notifier.watchdog, listeners: described_listeners, kept: @masters.filter_map(&:kept).map(&:to_h) }
      @masters << Master.new(boot(about, ours, theirs), ours, :booting)
    rescue SystemCallError => error
      ours&.close
      give_up("The command cannot be run: #{error.message}.")
    ensure
      theirs&.close
    end

    # Nothing of an app is loaded here: the first supervisor is a fork. Those that follow run the command again, with what
    # it finds then.
    def boot(about, ours, theirs)
      return @launch.again({ ParentLink::VARIABLE => Messages.json(about) }, [theirs.io, *listeners.map(&:io)]) unless @first

      first, @first = @first, nil
      Process.fork do
        ours.close
        [theirs, *listeners].each { |one| one.io.autoclose = false } # the descriptors are the parent link's now
        exit(first.call(ParentLink.new(**about)))
      end
    end

    def hear(master)
      messages, gone = master.channel.receive
      messages.each do |message|
        case message
        when Messages::Serves then succeed(master, message.listeners)
        when Messages::Failed then master.failure = message.description
        when Messages::Notify then @notifier.pass_on(message.text) if master.state == :serving
        when Messages::Renew then renew
        when Messages::Keeps then pass_on(master.kept = message, newer_than(master))
        when Messages::Wish then ask_older_ones(master, message)
        when Messages::Dismiss then stop_listening if master.state == :serving
        end
      end
      return unless gone

      master.channel.close
      master.channel = nil
    end

    def succeed(master, described)
      replace_listeners(master.channel.take_ios.zip(described).map do |io, (asked, owned)|
        Listener.new(io, asked:, owned:)
      end)
      serving&.then { |other| leave(other) }
      master.state = :serving
      first = @generation.nil?
      @generation = first ? 0 : @generation + 1
      @notifier.ready(@listeners.map(&:uri))
      Log.say "The new code serves, as process #{master.pid}." unless first
    end

    # They are in the order in which they were started.
    def newer_than(master) = @masters.drop(@masters.index(master) + 1)

    def pass_on(message, masters) = masters.each { |master| master.channel&.tell(message) }

    def ask_older_ones(master, wish)
      pass_on(wish, @masters.take(@masters.index(master)))
    end

    # By message: a service manager may send the signal to all processes. Code that boots may hear no message yet.
    def dismiss(signal)
      stop_listening
      @dismissed = true
      @masters.each do |master|
        told = master.channel&.tell(Messages::Dismiss.new)
        kill(signal, master) unless told && master.state != :booting
      end
    end

    # No more connections come in that no worker would accept.
    def stop_listening
      @stopping = true
      @listeners.each(&:close)
    end

    def kill(signal, master)
      Process.kill(signal, master.pid)
    rescue Errno::ESRCH
      nil
    end

    def leave(master)
      master.state = :leaving
      master.channel&.tell(Messages::Leave.new)
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

    def give_up(description, status = nil)
      @status = status ? code(status) : 1 if @generation.nil? # nobody serves
      return if @stopping
      return warn("fairlead: #{description}") if @generation.nil?

      Log.say "The new code could not be started, and the old goes on serving.\n#{description}"
      serving&.channel&.tell(Messages::Failed.new(description))
      @notifier.ready(@listeners.map(&:uri))
    end

    def how_it_ended(status)
      return "The new process ended with status #{status.exitstatus}; what it has said is above." unless status.signaled?

      "The new process was ended by SIG#{Signal.signame(status.termsig)}."
    end

    # As a shell would tell it.
    def code(status) = status.exitstatus || (128 + status.termsig)
  end
end
