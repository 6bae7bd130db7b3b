# frozen_string_literal: true

require_relative "../../test/helper"
require "tmpdir"
require_relative "../harness/cli"

module Bench
  # A run that was ended early, by its deadline or by a signal, goes on where it was.
  class SlicesTest < Minitest::Test
    # A server in a few lines, which says its own name.
    class Little < Server
      SCRIPT = <<~'RUBY'
        require "socket"
        server = TCPServer.new("127.0.0.1", Integer(ARGV[0]))
        loop do
          client = server.accept
          client.gets("\r\n\r\n")
          client.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nHello")
          client.close
        end
      RUBY

      def command(site) = ["--disable-gems", site.write("little.rb", SCRIPT), site.port.to_s]
    end

    # What {Toolchain} is where all is there already.
    class Tools
      def ruby = [RbConfig.ruby]
      def environment = {}
    end

    # A load that counts its runs.
    class Once
      def main_figure = :requests_per_second

      def run(_server, _seconds)
        { requests: 1, requests_per_second: 1.0, errors: 0, non_2xx: 0 }
      end
    end

    # Has room for so many visits.
    Room = Struct.new(:visits) do
      def room_for?(_seconds) = (self.visits -= 1) >= 0
      def left = nil
    end

    def setup
      @workload = Workload.new("little")
      @workload.app = "hello.ru"
      @workload.warm_up = 0
      @workload.expectation = "Hello"
      @loads = [Workload::Load.new(name: "once", generator: Once.new, ideal: nil, most: nil, seconds: 1)]
    end

    def runner(visits, seed: 7)
      servers = %w[little:1 little:2 little:3].map { |label| Server.for(label) }
      Runner.new(@workload, servers, toolchain: Tools.new, rounds: 2, loads: @loads, random: Random.new(seed),
        progress: Progress.new(StringIO.new), deadline: Room.new(visits), visit_seconds: 1)
    end

    def visits(runs) = runs["once"].map { |run| run.values_at(:round, :server) }

    def test_what_one_call_leaves_the_next_one_does_in_the_same_order
      whole = runner(6).run
      Dir.mktmpdir do |folder|
        first = runner(2)
        first.run { |runs, seconds| Unfinished.new("little", { rounds: 2 }, folder:).keep(runs, seed: 7, took: seconds) }
        left = Unfinished.new("little", { rounds: 2 }, folder:)
        second = runner(9, seed: left.seed)
        runs = second.run(left.runs)

        assert_equal [true, nil], [first.stopped, second.stopped]
        assert_equal 2, left.runs["once"].size
        assert_equal visits(whole), visits(runs)
        assert_equal 6, visits(runs).uniq.size
      end
    end

    def test_what_was_measured_in_another_way_is_not_gone_on_from
      Dir.mktmpdir do |folder|
        Unfinished.new("little", { rounds: 5, fairlead: "abc" }, folder:).keep({ "once" => [{ round: 1 }] }, seed: 1, took: 2.0)

        assert_equal [{ round: 1 }], Unfinished.new("little", { rounds: 5, fairlead: "abc" }, folder:).runs["once"]
        other = Unfinished.new("little", { rounds: 5, fairlead: "def" }, folder:)
        assert_equal [{}, nil, 0.0], [other.runs, other.seed, other.took]
      end
    end

    def test_a_deadline_leaves_room_for_one_thing_in_any_case
      deadline = Deadline.new(1)

      assert deadline.room_for?(3_600)
      assert deadline.room_for?(30)
      refute deadline.room_for?(61)
      assert Deadline.new.room_for?(3_600)
    end

    def test_the_progress_says_how_much_of_the_time_left_belongs_to_this_call
      output = StringIO.new
      progress = Progress.new(output, deadline: Deadline.new(8))
      progress.plan("second", 7200)
      progress.start(1)
      progress.step(1, "fairlead", [])

      assert_match(/\A\[2:00:00 left, \d:\d\d of them now\] round 1 fairlead/, output.string)
    end

    # That of all parts on CRuby and JRuby, twice.
    def test_the_time_that_is_announced_has_the_pool_in_it
      progress = Progress.new(StringIO.new)
      command = CLI.new
      _, said = capture_io { command.send(:announce, [pool(rounds: 2)], progress) }

      assert_equal "fair-pool: about 7:10 in all\n", said
      assert_equal 430, progress.planned
    end

    def test_of_the_pool_only_the_parts_that_are_asked_for_take_time
      assert_equal 64 + 12 + 12, pool(rounds: 1, only: %w[crowd cost]).planned
    end

    def test_a_java_is_installed_on_debian_where_there_is_none_and_it_is_needed
      assert_equal [1, 52 + 52], pool_without_java(only: %w[threads cost], installs: true)
      assert_equal [0, 47 + 64], pool_without_java(only: %w[fibers crowd], installs: true)
    end

    def test_where_no_java_can_be_installed_jruby_is_left_out
      assert_equal [0, 52], pool_without_java(only: %w[threads cost], debian: false)
    end

    def pool(java: -> { true }, debian: true, **options)
      FairPool.new(Options.new(**options), toolchain: nil, deadline: nil).tap do |pool|
        pool.define_singleton_method(:java?) { java.call }
        pool.define_singleton_method(:debian?) { debian }
      end
    end

    # @return [Array(Integer, Integer)] the calls of bin/setup, and the seconds of the parts that are left.
    def pool_without_java(only:, debian: true, installs: false)
      set_ups = 0
      set_up = Toolchain.method(:set_up)
      Toolchain.define_singleton_method(:set_up) { set_ups += 1 }
      planned = nil
      capture_io { planned = pool(java: -> { installs && set_ups.positive? }, debian:, rounds: 1, only:).planned }
      [set_ups, planned]
    ensure
      Toolchain.define_singleton_method(:set_up, set_up)
    end

    def test_what_is_measured_already_is_left_out_by_who_goes_on
      saved = Results.read("hello")
      toolchain = Struct.new(:description, :gems).new(*saved["versions"].values_at("ruby", "gems"))
      finished = [saved["rounds"], saved["rounds"] + 1].map do |rounds|
        options = Options.new(rounds:, only: saved["loads"].map { |load| load["name"] }, save: true)
        run = WorkloadRun.new(Selection.new(Workload.load("hello"), options), options, toolchain:, progress: nil, deadline: nil)
        run.instance_variable_get(:@servers).each do |server|
          server.define_singleton_method(:prepare) { |_| { fairlead: saved["versions"]["fairlead"] } if label == "fairlead" }
        end
        run.finished?
      end

      assert_equal [true, false], finished
    end

    def test_a_saved_result_is_recognized_as_the_same_measurement
      document = Results.read("hello")
      identity = Results.identity(document)

      assert_equal %w[gems loads ours peer_rounds rounds ruby seconds servers workload], identity.keys.sort
      assert_equal ["fairlead"], identity["ours"].keys
      refute_equal identity, Results.identity(document.merge("rounds" => 99))
    end
  end
end
