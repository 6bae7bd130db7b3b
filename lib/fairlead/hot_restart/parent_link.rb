# frozen_string_literal: true

require "json"
require "socket"
require_relative "../parts"

module Fairlead
  # Who started this supervisor and stays the first process: the {InitProcess}. It has the listening sockets, speaks to the service manager, and passes signals on. {HotRestart} is its side.
  class ParentLink
    VARIABLE = "FAIRLEAD_PARENT"

    # @param variables [Hash] environment variables; what is found there is removed.
    # @return [ParentLink, nil] nil: this is the first process itself.
    def self.find(variables = ENV)
      text = variables.delete(VARIABLE)
      new(**JSON.parse(text, symbolize_names: true)) if text
    end

    # @return [Integer] the process id by which the server is known.
    attr_reader :pid
    # @return [Integer] how many supervisors there have been before.
    attr_reader :generation
    # @return [Array<Listener>]
    attr_reader :listeners
    # @return [Float, nil] see {ServiceManager#watchdog}.
    attr_reader :watchdog
    # @return [Array<Budgets::Kept>] what those that run already keep of the database connections.
    attr_reader :kept

    def initialize(pid:, generation:, control:, listeners:, watchdog: nil, kept: [])
      @pid = pid
      @generation = generation
      @watchdog = watchdog
      @channel = Messages::Channel.new(UNIXSocket.for_fd(control).tap { |io| io.close_on_exec = true })
      @listeners = listeners.map { |fd, asked, owned| Listener.new(Socket.for_fd(fd), asked:, owned:, owner: pid) }
      @kept = kept.map { |one| Budgets::Kept.new(**one) }
    end

    # @return [IO] readable when it has said something, or ended.
    def io = @channel.io

    # (see Message::Channel#receive)
    def receive = @channel.receive

    # All workers serve. From now on the sockets are the parent's to remove, the new ones too.
    def serving(listeners)
      listeners.each { |listener| listener.owner = pid }
      @channel.tell(Messages::Serves.new(listeners.map { |listener| [listener.asked, listener.owned] }),
                    listeners.map(&:io))
    end

    # @param text [String] for the service manager.
    def notify(text) = @channel.tell(Messages::Notify.new(text))

    # @param kept [Budgets::Kept] for the supervisors of newer code.
    def keeps(kept) = @channel.tell(Messages::Keeps.new(**kept.to_h))

    # For those of older code: see {Budgets#wishes}.
    def wish(server, count) = @channel.tell(Messages::Wish.new(server:, count:))

    # @param description [String] why this one cannot serve.
    def failed(description) = @channel.tell(Messages::Failed.new(description))

    # New code shall be started.
    def renew = @channel.tell(Messages::Renew.new)

    # This one has been told to end, and drains.
    def dismissed = @channel.tell(Messages::Dismiss.new)

    # In a worker.
    def close = @channel.close
  end
end
