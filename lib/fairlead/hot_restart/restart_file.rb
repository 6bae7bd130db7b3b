# frozen_string_literal: true

module Fairlead
  # The file whose touch asks for a restart: what `bin/rails restart` does, and what users of other servers are used to.
  # It is looked at once a second.
  class RestartFile
    PATH = "tmp/restart.txt"
    EVERY = 1.0 # seconds
    private_constant :EVERY

    # @return [Float] when it should be looked at again, in seconds of the monotonic clock.
    attr_reader :deadline

    # @param folder [String] the app's; as a link it is followed each time.
    def initialize(folder = Dir.pwd)
      @path = File.join(folder, PATH)
      @seen = modified
      @deadline = 0.0
    end

    # @param now [Float]
    # @return [Boolean] whether it has been touched since, or made; once for each time.
    def touched?(now)
      return false if now < @deadline

      @deadline = now + EVERY
      before = @seen
      @seen = modified || before
      !@seen.nil? && (before.nil? || @seen > before)
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
