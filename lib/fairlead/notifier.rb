# frozen_string_literal: true

require "socket"
require_relative "parts"

module Fairlead
  # Tells a service manager how the server is (sd_notify(3)). Does nothing where there is none.
  class Notifier
    # @return [String, nil] where the service manager listens.
    attr_reader :path

    # @param variables [Hash] environment variables; NOTIFY_SOCKET is removed, so that no child speaks in our
    #   name.
    # @param parent [Parent, nil] the first process, which alone is listened to.
    def initialize(variables = ENV, parent: nil)
      @path = variables.delete("NOTIFY_SOCKET")
      @path = nil if @path && @path.empty?
      @parent = parent
      # A name that begins with @ is one of Linux' abstract namespace.
      @address = Socket.sockaddr_un(@path.sub(/\A@/, "\0")) if @path
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

    # What another supervisor says of itself: the first process stays the main one.
    def pass_on(text) = notify(*text.lines(chomp: true).grep_v(/\AMAINPID=/))

    private

    def notify(*lines)
      return @parent.notify(lines.join("\n")) if @parent
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
