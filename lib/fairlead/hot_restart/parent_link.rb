# frozen_string_literal: true

require "json"
require "socket"
require_relative "../parts"

module Fairlead
  # A supervisor's link to the {InitProcess}, which has the listening sockets, talks to the service manager and passes signals
  # on. {HotRestart} is the other end.
  class ParentLink
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
    # @return [Array<Listener>]
    attr_reader :listeners
    # @return [Float, nil] see {ServiceManager#watchdog}.
    attr_reader :watchdog
    # @return [Array<Budgets::Kept>] what older generations keep of the database connections.
    attr_reader :kept

    def initialize(pid:, generation:, control:, listeners:, watchdog: nil, kept: [])
      @pid = pid
      @generation = generation
      @watchdog = watchdog
      @channel = Channel.new(UNIXSocket.for_fd(control).tap { |io| io.close_on_exec = true })
      @listeners = listeners.map { |fd, asked, owned| Listener.new(Socket.for_fd(fd), asked:, owned:, owner: pid) }
      @kept = kept.map { |one| Budgets::Kept.new(**one) }
    end

    # @return [IO] readable when a message, or the end of the init process, has come.
    def io = @channel.io

    # (see Channel#receive)
    def receive = @channel.receive

    # All workers serve. From now on the init process removes the files of the sockets, also of the new ones.
    def serving(listeners)
      listeners.each { |listener| listener.owner = pid }
      @channel.post(Messages::Serving.new(listeners.map { |listener| [listener.asked, listener.owned] }), listeners.map(&:io))
    end

    # @param text [String] for the service manager.
    def notify(text) = @channel.post(Messages::Notify.new(text))

    # @param kept [Budgets::Kept] for newer generations.
    def keeps(kept) = @channel.post(Messages::Keeps.new(**kept.to_h))

    # For older generations: see {Budgets#wishes}.
    def wish(server, count) = @channel.post(Messages::Wish.new(server:, count:))

    # @param description [String] why this generation cannot serve.
    def failed(description) = @channel.post(Messages::Failed.new(description))

    # Asks for new code.
    def restart = @channel.post(Messages::Restart.new)

    # This supervisor was told to end by a signal of its own.
    def stopping = @channel.post(Messages::Stopping.new)

    # In a worker.
    def close = @channel.close
  end
end
