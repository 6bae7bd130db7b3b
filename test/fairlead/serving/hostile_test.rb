# frozen_string_literal: true

require "json"
require_relative "../../helper"
require_relative "../../http_client"
require_relative "../../hostile/attack"
require_relative "../../../bench/harness/cli"

module Fairlead
  # Clients that mean harm: each is gone by its deadline, and the others are served meanwhile. `rake hostile` does the
  # same at length, with many more of them.
  class HostileTest < Test
    include SpeaksHTTP
    needs :machine

    APP = File.read(File.expand_path("../../hostile/config.ru", __dir__))
    DEADLINES = { head_timeout: 1, body_timeout: 1, write_timeout: 1, idle_timeout: 2 }.freeze
    FLAGS = DEADLINES.flat_map { |name, seconds| ["--#{name.to_s.tr("_", "-")}", seconds.to_s] }.freeze
    Target = Struct.new(:port)
    # Of each offence.
    EACH = 10
    # Seconds, for the delays of a busy machine.
    SLACK = 4

    timing def test_each_is_gone_by_its_deadline_and_the_others_are_served_meanwhile
      server = with_server(APP, *FLAGS)
      alone = ask(server)
      beside = nil
      outcomes = Hostile::Attack.new(server.port, Hostile::OFFENCES, each: EACH).during { beside = ask(server, 7) }
      Hostile::OFFENCES.each { |offence| assert_ended(offence, outcomes.fetch(offence.name)) }
      assert_hold_up_nobody(alone, beside)
      eventually("nothing is left") { stats(server).values_at("in_flight", "connections") == [0, 1] } # the one that asks
    end

    def test_connections_that_are_left_make_room_for_others_and_leave_descriptors_to_the_app
      server = with_server(APP, spawn_options: { rlimit_nofile: [128, 128] })
      Array.new(200) { client(to: server) }
      3.times { assert_includes client(to: server).get("/file").body, "File.read" }
    end

    # Each is kept a megabyte, while there are few of them.
    def test_many_who_do_not_read_take_little_memory
      server = with_server(APP, "--queue-target", "0")
      stats(server)
      before = memory(server)
      Hostile::Attack.new(server.port, Hostile::OFFENCES.select { |one| one.name == "clients that read nothing" }, each: 300).during do
        eventually("all have asked") { stats(server)["in_flight"] >= 300 }
        assert_operator memory(server) - before, :<, 200
      end
    end

    # 20,000, or as many as this process may have.
    timing def test_thousands_of_connections_that_are_left_hold_up_nobody_and_take_little_memory
      limits = Process.getrlimit(:NOFILE)
      Hostile.raise_descriptor_limit
      left = [20_000, Process.getrlimit(:NOFILE).last - 1000].min
      skip "a process may have only #{limits.last} descriptors here" if left < 5000
      server = with_server(APP, "--idle-timeout", "300", "--bind", "http://0.0.0.0:0")
      alone = ask(server)
      before = memory(server)
      # The kernel looks for a free port for long where most are taken: so there are four addresses.
      addresses = (1..4).map { |last| Addrinfo.tcp("127.0.0.#{last}", server.port) }
      sockets = Array.new(left) { |number| Socket.new(:INET, :STREAM).tap { |socket| socket.connect(addresses[number % 4]) } }
      eventually("all are there") { stats(server)["connections"] > left }
      assert_hold_up_nobody(alone, ask(server))
      assert_operator memory(server) - before, :<, 12
      sockets.each(&:close)
      eventually("nothing is left") { stats(server)["connections"] == 1 } # the one that asks
    ensure
      sockets&.each(&:close)
      Process.setrlimit(:NOFILE, *limits)
    end

    # Sends all that an offender has, as fast as it is taken.
    class Torrent < Hostile::Offender
      def write(bytes)
        while bytes && !bytes.empty?
          count = @socket.write_nonblock(bytes, exception: false)
          count == :wait_writable ? (@socket.wait_writable(0.5) or raise Errno::EPIPE) : bytes = bytes.byteslice(count..)
        end
      end
    end

    # Bombs, floods and extensions: what is refused is not kept, nor what is not read.
    def test_what_comes_without_end_takes_little_memory
      server = with_server(APP)
      ask(server, 1)
      before = memory(server)
      Hostile::OFFENCES.select { |one| one.flood || one.lasts == :at_once }.each { |offence| pour(server, offence) }
      assert_operator memory(server, "VmHWM") - before, :<, 16
      assert_equal 200, client(to: server).get("/page").status
    end

    private

    # 64 MB of most, unless the server takes no more.
    def pour(server, offence)
      server.connect do |socket|
        torrent = Torrent.new(socket, 0)
        4000.times { torrent.tick(offence) unless socket.closed? }
      rescue Errno::EPIPE, Errno::ECONNRESET
        nil
      end
    end

    def ask(server, seconds = 2) = Bench::OpenLoop.new(rate: 100, patience: 10).run(Target.new(server.port), seconds)

    # @param alone [Hash] what others wait for where nobody means harm.
    # @param beside [Hash] and beside those who do.
    def assert_hold_up_nobody(alone, beside)
      assert_equal [0, 0], beside.values_at(:errors, :non_2xx)
      assert_operator beside[:p99], :<, (5 * alone[:p99]) + 250, "ms, p99 of others"
    end

    # Twice a deadline, since what has moved just before the first one counts for the second. Who goes on sending after it
    # was refused is listened to for 2 s.
    def may_last(offence) = (offence.lasts == :at_once ? 2 : 2 * DEADLINES.fetch(offence.lasts)) + SLACK

    def assert_ended(offence, outcome)
      assert_operator outcome.opened, :>=, EACH
      return unless offence.lasts

      assert_equal outcome.opened, outcome.gone, "#{offence.name}: not all are gone"
      assert_operator outcome.longest, :<, may_last(offence), offence.name
      answers = outcome.answers.keys.map(&:to_s)
      answers -= %w[408] if offence.lasts == :at_once # one that a busy machine lets send too little until its time is up
      assert_equal offence.answers.map(&:to_s), answers, offence.name unless offence.answers.empty?
    end

    # Of others than the request that asks.
    def stats(server) = JSON.parse((@asking ||= client(to: server)).get("/stats").body)

    # Megabytes of the worker: now, or at most so far.
    def memory(server, field = "VmRSS")
      File.read("/proc/#{server.worker_pids.first}/status")[/^#{field}:\s+(\d+)/, 1].to_i / 1024.0
    end
  end
end
