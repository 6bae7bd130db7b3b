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
      @current = new(**JSON.parse(text, symbolize_names: true)) if text
      @current
    end

    # @return [Integer] the process id by which the server is known.
    attr_reader :pid
    # @return [Integer] how many generations have been started before.
    attr_reader :generation
    attr_reader :listeners
    # @return [Float, nil] see {ServiceManager#watchdog}.
    attr_reader :watchdog
    # @return [Array<Messages::RetainedConnections>] of each older generation.
    attr_reader :retained

    # Ignores what an init process of another version says beside it.
    #
    # @param rehearsal [Boolean] whether this process is only to load the app.
    def initialize(pid:, generation:, control:, listeners:, watchdog: nil, retained: [], rehearsal: false, **)
      super(UNIXSocket.for_fd(control))
      io.close_on_exec = true
      @pid = pid
      @generation = generation
      @watchdog = watchdog
      @retained = retained.map { |one| Messages::RetainedConnections.new(**one) }
      @rehearsal = rehearsal
      @listeners = listeners.map { |fd, asked, owned| Listener.new(Socket.for_fd(fd), asked:, owned:, owner: pid) }
    end

    def rehearsal? = @rehearsal

    # All workers serve. From now on the init process removes the files of the sockets, also of the new ones.
    def serving(listeners)
      listeners.each { |listener| listener.owner = pid }
      post(Messages::Serving.new(listeners.map { |listener| [listener.asked, listener.owned] }), listeners.map(&:io))
    end

    def failed(description) = post(Messages::Failed.new(description))
  end
end
