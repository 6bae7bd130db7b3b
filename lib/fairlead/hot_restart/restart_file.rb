# frozen_string_literal: true

module Fairlead
  # The file whose touch asks for a restart, as `bin/rails restart` does.
  class RestartFile
    PATH = "tmp/restart.txt"
    INTERVAL = 1.0 # seconds between two looks

    # @param folder [String] of the app; a link is followed each time.
    def initialize(folder)
      @path = File.join(folder, PATH)
      @modified = modified
    end

    # @return [Boolean] whether it has been made or touched since the last call.
    def touched?
      before = @modified
      @modified = modified || before
      @modified != before
    end

    private

    def modified
      File.mtime(@path)
    rescue SystemCallError
      nil
    end
  end
end
