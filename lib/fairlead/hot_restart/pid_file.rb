# frozen_string_literal: true

module Fairlead
  # The file that holds the server's process id while it runs.
  class PidFile
    # @param at [String] where the path was set, for error messages.
    def initialize(path, at: "pidfile")
      @path = path && File.expand_path(path)
      @at = at
    end

    # @raise [ConfigurationError] if another process is alive under the id it holds, or it cannot be written.
    def write
      return unless @path

      other = holder
      if other && other != Process.pid && alive?(other)
        raise ConfigurationError, "#{@at}: #{@path} says that the server runs already, as process #{other}. " \
                                  "Stop it (kill #{other}), or remove the file if that process is another program."
      end
      File.write(@path, "#{Process.pid}\n")
    rescue SystemCallError => error
      raise ConfigurationError, "#{@at}: #{@path} cannot be written: #{error.message[/\A[^@]+/].strip}. " \
                                "Create its folder, or name another file."
    end

    # Only if it still names this process.
    def remove
      File.unlink(@path) if @path && holder == Process.pid
    rescue SystemCallError
      nil
    end

    private

    def holder
      pid = Integer(File.read(@path).strip, 10, exception: false)
      pid if pid&.positive?
    rescue Errno::ENOENT
      nil
    end

    def alive?(pid)
      Process.getpgid(pid).positive?
    rescue Errno::ESRCH
      false
    end
  end
end
