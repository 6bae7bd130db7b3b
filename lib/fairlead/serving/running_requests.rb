# frozen_string_literal: true

module Fairlead
  # The requests that a worker serves now, and what each of them waits for.
  class RunningRequests
    # @param io [IO]
    # @return [String, nil] "192.0.2.7:5432", or the path of a socket; nil: it is no socket, or not connected.
    def self.peer(io)
      address = io.remote_address if io.is_a?(::BasicSocket)
      address&.ip? ? address.inspect_sockaddr : address&.unix_path
    rescue SystemCallError, SocketError, IOError
      nil
    end

    # @param loop [Loop]
    # @param selectors [#call] returns those of all reactors.
    def initialize(loop, selectors)
      @loop = loop
      @selectors = selectors
    end

    # Safe in any thread.
    #
    # @return [Array<Hash>] the oldest ones, each `{ id:, method:, path:, route:, age:, waits_for:, waited:, detail: }`. `waits_for:` is one
    #   of `SharedPage::KINDS`, `waited:` for how long; `detail:` the address that it waits for.
    def list
      rows = @loop.in_flight(0)
      waits = rows.any? { |row| row[:waits] } ? sockets : {}
      rows.sort_by { |row| -row[:age] }.map do |row|
        io, request = waits[row[:id]]
        { **row.except(:waits), route: action(request) || row[:route], detail: (RunningRequests.peer(io) if io) }
      end
    end

    private

    # @return [Hash{Integer => Array(IO, Request)}] by the request's id.
    def sockets
      found = {}
      @selectors.call.each do |selector|
        selector.waits.each do |io, fibers|
          [*fibers].each { |fiber| (request = ServingFiber.request_of(fiber)) && found[request.id] = [io, request] }
        end
      end
      found
    end

    def action(request) = request && RailsRoutes.action_of(request.env)
  end
end
