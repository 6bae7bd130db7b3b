# frozen_string_literal: true

require "socket"

module Fairlead
  # Reports the state of the server to a service manager (sd_notify(3)), if there is one.
  class ServiceManager
    # @return [Float, nil] the service manager expects {#well} at least every so many seconds (sd_watchdog_enabled(3)).
    attr_reader :watchdog

    # @param variables [Hash] environment variables; those for this process are removed, so that no child uses them.
    # @param parent [ParentLink, nil] the init process, from which alone the service manager takes messages.
    def initialize(variables = ENV, parent: nil)
      path = variables.delete("NOTIFY_SOCKET").to_s
      @parent = parent
      # A name that begins with @ is in Linux' abstract namespace.
      @address = Socket.sockaddr_un(path.sub(/\A@/, "\0")) unless path.empty?
      @socket = Socket.new(:UNIX, :DGRAM) if @address # opened now: there may be no descriptor left later
      @watchdog = parent ? parent.watchdog : interval(*%w[WATCHDOG_USEC WATCHDOG_PID].map { |name| variables.delete(name) })
    end

    def ready(addresses)
      notify("READY=1", "MAINPID=#{Process.pid}", "STATUS=serving #{addresses.join(" ")}")
    end

    # A restart of the workers begins; {#ready} ends it.
    def reloading
      notify("RELOADING=1", "MONOTONIC_USEC=#{Clock.microseconds}", "STATUS=restarting the workers")
    end

    def well = notify("WATCHDOG=1")

    def stopping = notify("STOPPING=1", "STATUS=finishing running requests")

    # A supervisor's message: the init process stays the main one.
    def pass_on(text) = notify(*text.lines(chomp: true).grep_v(/\AMAINPID=/))

    private

    def interval(microseconds, pid)
      seconds = microseconds.to_i / 1_000_000.0
      seconds if seconds.positive? && @address && (pid.nil? || pid.to_i == Process.pid)
    end

    def notify(*lines)
      return @parent.post(Messages::Notify.new(lines.join("\n"))) if @parent
      return unless @address

      # Never waits: a service manager that does not read must not stop the server.
      @socket.sendmsg_nonblock("#{lines.join("\n")}\n", 0, @address)
      nil
    rescue IO::WaitWritable, SystemCallError => error
      Log.say "The service manager cannot be reached (NOTIFY_SOCKET): #{error.message}"
      nil
    end
  end
end
