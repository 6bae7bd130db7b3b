# frozen_string_literal: true

require "open3"
require_relative "../../helper"

module Fairlead
  # The supervisor, or the process that serves alone, has no descriptor left.
  class DescriptorsTest < Test
    # In the process that loads the app: takes all once there is a file `fill`, until there is a file `free`.
    APP = <<~RUBY
      Process.setrlimit(:NOFILE, 200, Process.getrlimit(:NOFILE).last)
      Thread.new do
        sleep 0.01 until File.exist?("fill")
        held = []
        begin
          loop { held << File.open("/dev/null") }
        rescue Errno::EMFILE
          held.pop.close
          File.write("full", "")
          held << File.open("/dev/null")
        end
        sleep 0.01 until File.exist?("free")
        held.each(&:close)
        sleep
      end
      run ->(env) { [200, {}, ["served"]] }
    RUBY
    private_constant :APP

    [0, 1].each do |workers|
      define_method("test_who_asks_is_answered_and_costs_nothing_with_#{workers}_workers") do
        full("-w", workers.to_s) do |server|
          3.times { assert_equal server.pid, about(server)&.fetch(:pid) }
          # Somebody is connected, and another one waits for the descriptor.
          clients = Array.new(3) { ask(server) }
          before = cpu_time(server.supervisor_pid)
          sleep 2

          assert_operator cpu_time(server.supervisor_pid) - before, :<, 0.5
          clients.each(&:close)
          eventually("it is answered") { about(server) }
        end
      end
    end

    def test_what_cannot_be_done_leaves_the_supervisor_running
      full("-w", "1") do |server|
        %i[USR2 USR1 HUP].each { |signal| server.signal(signal) }
        server.write("tmp/restart.txt", "")
        eventually("it is told") { server.log.scan("Too many open files").any? }

        refute_predicate server, :ended?
        assert_equal "served", server.get.body
        assert_predicate server.stop, :success?
      end
    end

    private

    def full(*flags)
      with_server(APP, *flags, lint: false) do |server|
        server.write("fill", "")
        eventually("it is full") { File.exist?(server.path("full")) }
        yield server
      end
    end

    def about(server) = ControlSocket.servers.find { |one| one[:pid] == server.pid }

    # Connects to all servers of this user, and reads nothing.
    def ask(_server)
      names = File.read("/proc/net/unix").scan(/@(fairlead-\h+)$/).flatten.uniq
      sockets = names.map { |name| Socket.new(:UNIX, :STREAM).tap { |socket| socket.connect_nonblock(Socket.sockaddr_un("\0#{name}"), exception: false) } }
      Struct.new(:sockets) { def close = sockets.each(&:close) }.new(sockets)
    end
  end
end
