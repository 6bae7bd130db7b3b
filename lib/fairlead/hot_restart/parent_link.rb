# frozen_string_literal: true

require "json"
require "socket"

module Fairlead
  # A supervisor's link to the {InitProcess}, which has the listening sockets, talks to the service manager and passes signals
  # on; or to a {Rehearsal}.
  class ParentLink < Channel
    VARIABLE = "FAIRLEAD_PARENT"

    # The link that the environment describes. The variable is removed, so that no child finds it.
    #
    # @return [ParentLink, nil] nil: this process was not started by an init process.
    def self.current
      text = ENV.delete(VARIABLE)
      ForkGuard.holders << (@current = new(**JSON.parse(text, symbolize_names: true))) if text
      @current
    end

    # @return [Integer] the process id by which the server is known.
    attr_reader :pid
    # @return [Integer] how many generations have been started before.
    attr_reader :generation
    attr_reader :listeners
    # @return [IO, nil] see {Certificates#memory}.
    attr_reader :tickets
    # @return [Float, nil] see {ServiceManager#watchdog}.
    attr_reader :watchdog
    # @return [Array<Messages::RetainedConnections>] of each older generation.
    attr_reader :retained

    # Ignores what an init process of another version says beside it.
    #
    # @param rehearsal [Boolean] whether this process is only to load the app.
    def initialize(pid:, generation:, control:, listeners:, tickets: nil, watchdog: nil, retained: [], rehearsal: false, **)
      super(UNIXSocket.for_fd(control))
      io.close_on_exec = true
      @pid = pid
      @generation = generation
      @watchdog = watchdog
      @retained = retained.map { |one| Messages::RetainedConnections.new(**one) }
      @rehearsal = rehearsal
      @tickets = IO.for_fd(tickets).tap { |memory| memory.close_on_exec = true } if tickets
      @listeners = listeners.map { |fd, asked, owned| Listener.new(Socket.for_fd(fd), asked:, owned:, owner: pid) }
    end

    def rehearsal? = @rehearsal

    # @api private
    # In a child of the app, which would keep the addresses, and hide the end of this process.
    def close_channels = [self, *@listeners, @tickets].compact.each(&:close)

    # All workers serve. From now on the init process removes the files of the sockets, also of the new ones.
    #
    # @param memory [IO, nil] see {Certificates#memory}.
    def serving(listeners, memory)
      listeners.each { |listener| listener.owner = pid }
      post(Messages::Serving.new(listeners.map { |listener| [listener.asked, listener.owned] }), [*listeners.map(&:io), memory].compact)
    end

    def failed(description) = post(Messages::Failed.new(description))
  end
end
