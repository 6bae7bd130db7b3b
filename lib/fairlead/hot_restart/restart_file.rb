# frozen_string_literal: true

module Fairlead
  # The file whose touch asks for a restart, as `bin/rails restart` does.
  class RestartFile
    PATH = "tmp/restart.txt"
    INTERVAL = 1.0 # seconds between two looks

    # @param folder [String] of the app; a link is followed each time.
    def initialize(folder)
      @path = File.join(folder, PATH)
      make
      @modified = modified
    end

    # @return [Boolean] whether it has been made or touched since the last call.
    def touched?
      before = @modified
      @modified = modified || before
      @modified != before
    end

    private

    # As Puma's plugin does at its start: one that runs beside this server would otherwise make the file, which reads as a touch. In
    # a folder of another user it is for that user to make it, who could not touch one of ours.
    def make
      File.open(@path, File::WRONLY | File::CREAT | File::EXCL, &:close) if File.owned?(File.dirname(@path))
    rescue SystemCallError
      nil
    end

    def modified
      File.mtime(@path)
    rescue SystemCallError
      nil
    end
  end
end
