# frozen_string_literal: true

require "fcntl"

module Fairlead
  # Fairlead's own log: lines on stderr, or in the file that the option `log` names.
  module Log
    class << self
      # @return [IO, nil] nil silences it.
      attr_writer :io

      def io
        defined?(@io) ? @io : $stderr
      end

      # @raise [ConfigurationError]
      def open(configuration)
        self.io = configuration.log ? open_file(configuration) : $stderr
      end

      # @return [File] for appending whole lines, from several processes.
      def open_file(configuration)
        file = File.open(configuration.log, File::WRONLY | File::APPEND | File::CREAT, 0o644)
        file.sync = true
        file
      rescue SystemCallError => error
        raise ConfigurationError,
              "#{configuration.source(:log)}: the log #{configuration.log} cannot be opened: " \
              "#{error.message[/\A[^@]+/].strip}. Create its folder, or name another file."
      end

      # Writes a message. Never raises: a full disk must not end a server.
      def say(message)
        io&.write("[#{Process.pid}] fairlead: #{message}\n")
      rescue IOError, SystemCallError
        nil
      end

      # Calls the block. What it raises is logged: one step must not end the loop that signals and other processes rely on.
      #
      # @param step [Object] a signal or a message, which the block handles.
      def contain(step)
        yield
      rescue StandardError, ScriptError, SystemStackError, NoMemoryError => error
        say "#{step.inspect} was not handled: #{error.full_message(highlight: false, order: :top)}"
      end

      # Reopens every log file of this process that was moved away, as by logrotate: Fairlead's, the app's, and stdout and stderr if
      # they go to a file.
      def reopen
        reopen_redirected if @redirected
        ObjectSpace.each_object(File).count { |file| log_file?(file) && moved?(file) && reopen_file(file) }
      end

      def redirect(path)
        @redirected = File.expand_path(path)
        [$stdout, $stderr].each do |stream|
          stream.reopen(@redirected, "a")
          stream.sync = true
        end
      end

      private

      def reopen_redirected
        redirect(@redirected)
      rescue SystemCallError => error
        say "The log #{@redirected} cannot be reopened: #{error.message}"
      end

      # A log is a file that is open for appending.
      def log_file?(file)
        return false if file.closed? || file.path.to_s.empty?

        file.fcntl(Fcntl::F_GETFL).allbits?(File::WRONLY | File::APPEND)
      rescue IOError, SystemCallError
        false
      end

      def moved?(file)
        there = File.stat(file.path)
        here = file.stat
        there.ino != here.ino || there.dev != here.dev
      rescue Errno::ENOENT
        true
      rescue IOError, SystemCallError
        false
      end

      def reopen_file(file)
        encoding = file.external_encoding
        sync = file.sync
        file.flush
        file.reopen(file.path, "a")
        file.sync = sync
        file.set_encoding(encoding) if encoding
        true
      rescue IOError, SystemCallError, ArgumentError => error
        say "The log #{file.path} cannot be reopened: #{error.message}"
        false
      end
    end
  end
end
