# frozen_string_literal: true

require "json"
require "rbconfig"
require "socket"
require_relative "parts"

module Fairlead
  # The first process of a server, where a supervisor of its own serves: after a hot restart, and from the start where it
  # is process 1 of a container. It has the process id by which the server is known, and the listening sockets; it passes
  # signals on, starts new code, reaps what nobody else does, and ends with the status of the server.
  #
  # It has no app, and no gems: a supervisor that becomes one runs a Ruby without them in its own place.
  class Keeper
    VARIABLE = "FAIRLEAD_KEEPER"
    SIGNALS = %i[TERM INT HUP TTIN TTOU USR1 USR2 CHLD].freeze
    # What a Ruby would load for the app.
    APP_VARIABLES = %w[RUBYOPT RUBYLIB].freeze
    # The first lines of the new Ruby: it notes signals before it loads anything.
    SCRIPT = <<~RUBY
      early = []
      %i[#{(SIGNALS - [:CHLD]).join(" ")}].each { |name| trap(name) { early << name } }
      require "fairlead/keeper"
      exit Fairlead::Keeper.resume(early)
    RUBY
    # So many characters of a failure are passed on: an environment variable has to be short.
    FAILURE = 10_000
    private_constant :SIGNALS, :APP_VARIABLES, :SCRIPT, :FAILURE

    class << self
      # Turns this process into a keeper. Ruby unblocks all signals as it starts, so they cannot be kept from it: those that
      # come in the 20 ms until it traps them are ignored. Else it would end by them.
      #
      # @param succession [Succession]
      # @param about [Hash] `tag:`, `log:`, `pidfile:`, each of them may be nil.
      # @param signals [Signals, nil] what this process has trapped.
      # @return [Integer] the exit status, if it cannot be done in a new Ruby, and was done in this one.
      def become(succession, signals: nil, **about)
        (SIGNALS - [:CHLD]).each { |name| Signal.trap(name, "IGNORE") }
        early = signals&.take.to_a
        execute(succession, about, early)
        new(succession, **about).run(early)
      end

      # In the new Ruby.
      #
      # @param early [Array<Symbol>] signals that have come meanwhile; more may come to it.
      # @return [Integer] the exit status.
      def resume(early)
        state = JSON.parse(ENV.delete(VARIABLE), symbolize_names: true)
        ENV.update(state[:app_variables].transform_keys(&:to_s))
        about = state.slice(:tag, :log, :pidfile)
        Log.io = File.open(about[:log], "a").tap { |file| file.sync = true } if about[:log]
        new(restored(state), **about).run(early.unshift(*state[:early].map(&:to_sym)))
      end

      private

      def execute(succession, about, early)
        return unless File.exist?(__FILE__) # the release may have been removed since

        ios = succession.masters.filter_map { |master| master.channel&.io } + succession.listeners.map(&:io)
        ios.each { |io| io.close_on_exec = false }
        state = Message.json(about.merge(described(succession), early:))
        variables = succession.launch.variables.except(*APP_VARIABLES).merge(VARIABLE => state)
        Process.exec(variables, RbConfig.ruby, "--disable-gems", "-I", File.dirname(__dir__), "-e", SCRIPT,
                     unsetenv_others: true)
      rescue SystemCallError => error
        ios&.each { |io| io.close_on_exec = true }
        Log.say "The first process keeps its app in memory: #{error.message}."
      end

      def described(succession)
        launch = succession.launch
        { command: launch.command, folder: launch.folder, app_variables: launch.variables.slice(*APP_VARIABLES),
          memory: succession.memory, service_manager: succession.service_manager, listeners: succession.described_listeners,
          masters: succession.masters.map { |master| described_master(master) } }
      end

      def described_master(master)
        [master.pid, master.channel&.io&.fileno, master.state, master.failure&.slice(0, FAILURE), master.kept&.to_h]
      end

      def restored(state)
        launch = Launch.new(state[:command], ENV.to_h, state[:folder])
        listeners = state[:listeners].map { |fd, asked, owned| Listener.new(Socket.for_fd(fd), asked:, owned:) }
        masters = state[:masters].map do |pid, fd, name, failure, kept|
          channel = fd && Message::Channel.new(UNIXSocket.for_fd(fd).tap { |io| io.close_on_exec = true })
          Succession::Master.new(pid, channel, name.to_sym, failure, kept && Message::Keeps.new(**kept))
        end
        Succession.new(launch, listeners, Notifier.new(state[:service_manager].transform_keys(&:to_s)), masters:, **state[:memory])
      end
    end

    def initialize(succession, tag: nil, log: nil, pidfile: nil)
      @succession = succession
      @tag = tag
      @pid_file = PidFile.new(pidfile)
    end

    # Until the last supervisor has ended.
    #
    # @param early [Array<Symbol>] signals that have come already; more may come to it until they are trapped here.
    # @return [Integer] the exit status.
    def run(early = [])
      @signals = Signals.new(*SIGNALS)
      Process.setproctitle("fairlead: keeper [#{@tag}]")
      @succession.renew if @succession.generation.nil?
      reap # who has ended while there was nobody to note it
      @succession.attend # what was said meanwhile
      early.each { |signal| handle(signal) }
      until @succession.masters.empty?
        IO.select([@signals.io, *@succession.ios])
        @signals.take.each { |signal| handle(signal) }
        @succession.attend
        reap
      end
      @succession.status
    ensure
      @succession.listeners.each(&:close)
      @pid_file.remove
    end

    private

    def handle(signal)
      case signal
      when :CHLD then nil
      when :USR2 then @succession.renew
      else
        Log.reopen if signal == :USR1
        @succession.forward(signal)
      end
    end

    # Process 1 also gets what has lost its own parent.
    def reap
      while (pid, status = Process.wait2(-1, Process::WNOHANG))
        @succession.ended(pid, status)
      end
    rescue Errno::ECHILD
      nil
    end
  end
end
