# frozen_string_literal: true

module Fairlead
  # Which addresses and which lines of the app a slow request has waited for longest. Made with its first long wait.
  class WaitNotes
    # Of each; what comes later and waits less is left out.
    MOST = 8
    private_constant :MOST

    # @param io [IO] that the fiber has waited for
    # @param seconds [Float]
    def self.add_socket(fiber, io, seconds)
      request = ServingFiber.request_of(fiber) or return
      address = RunningRequests.peer(io)
      request.notes.add_socket(address, seconds) if address
    end

    def initialize
      @sockets = {}
      @frames = {}
    end

    def add_socket(address, seconds) = add(@sockets, address, seconds)

    # @param frame [String] "app/models/report.rb:12 in `render'"
    def add_frame(frame, seconds) = add(@frames, frame, seconds)

    # @return [Hash] `{ sockets: [{ at:, seconds: }], frames: [{ at:, seconds: }] }`, the longest first.
    def to_h = { sockets: sorted(@sockets), frames: sorted(@frames) }

    private

    def add(table, key, seconds)
      table[key] = table.fetch(key, 0.0) + seconds if table.key?(key) || table.size < MOST
    end

    def sorted(table) = table.sort_by { |_, seconds| -seconds }.map { |at, seconds| { at:, seconds: seconds.round(6) } }
  end
end
