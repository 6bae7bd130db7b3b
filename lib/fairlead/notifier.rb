# frozen_string_literal: true

require "socket"
require_relative "parts"

module Fairlead
  # Tells a service manager how the server is (sd_notify(3)). Does nothing where there is none.
  class Notifier
    # @param variables [Hash] environment variables; NOTIFY_SOCKET is removed, so that no child speaks in our
    #   name.
    def initialize(variables = ENV)
      path = variables.delete("NOTIFY_SOCKET")
      # A name that begins with @ is one of Linux' abstract namespace.
      @address = Socket.sockaddr_un(path.sub(/\A@/, "\0")) if path && !path.empty?
    end

    # All workers serve.
    #
    # @param addresses [Array<String>]
    def ready(addresses)
      notify("READY=1", "MAINPID=#{Process.pid}", "STATUS=serving #{addresses.join(" ")}")
    end

    # A restart of the workers begins; {#ready} ends it.
    def reloading
      now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
      notify("RELOADING=1", "MONOTONIC_USEC=#{now}", "STATUS=restarting the workers")
    end

    # The server drains.
    def stopping
      notify("STOPPING=1", "STATUS=finishing the requests that run")
    end

    private

    def notify(*lines)
      return unless @address

      socket = Socket.new(:UNIX, :DGRAM)
      # Never waits: a service manager that does not listen must not stop the supervisor.
      socket.sendmsg_nonblock("#{lines.join("\n")}\n", 0, @address)
      nil
    rescue IO::WaitWritable, SystemCallError => error
      Log.say "The service manager cannot be told (NOTIFY_SOCKET): #{error.message}"
      nil
    ensure
      socket&.close
    end
  end
end
