# frozen_string_literal: true

module Fairlead
  # The file whose touch asks for a restart, as `bin/rails restart` does. It is looked at once a second.
  class RestartFile
    PATH = "tmp/restart.txt"
    INTERVAL = 1.0 # seconds
    private_constant :INTERVAL

    # @return [Float] when to look again, in seconds of the monotonic clock.
    attr_reader :deadline

    # @param folder [String] of the app; a link is followed each time.
    def initialize(folder)
      @path = File.join(folder, PATH)
      @modified = modified
      @deadline = 0.0
    end

    # @param now [Float]
    # @return [Boolean] whether it has been made or touched since the last call.
    def touched?(now)
      return false if now < @deadline

      @deadline = now + INTERVAL
      before = @modified
      @modified = modified || before
      !@modified.nil? && (before.nil? || @modified > before)
    end

    private

    # @return [Time, nil]
    def modified
      File.mtime(@path)
    rescue SystemCallError
      nil
    end
  end
end
