# frozen_string_literal: true

require "open3"
require_relative "../helper"
require_relative "serving/ladder/hand_over_test"
require_relative "serving/ladder/lane_test"
require_relative "serving/ladder/relief_test"
require_relative "serving/ladder/standby_test"
require_relative "supervision/worker_recycler_test"
require_relative "cli/restart_test"
require_relative "serving/fork_test"
require_relative "serving/http_test"
require_relative "serving/killed_worker_test"
require_relative "serving/slow_clients_test"
require_relative "stalls/reporter_test"
require_relative "supervision/supervisor_test"

module Fairlead
  # The server as it is where all that only Linux has is missing: some of the other tests, of each part that asks the
  # system for anything, with a core that was compiled so, and a Ruby that finds no /proc.
  module OnFallbacks
    FLAGS = ["-I", File.join(Test::ROOT, "tmp/fallbacks"), "-r", File.join(__dir__, "without_proc")].freeze

    # What runs on it. Each is a class of its own, beside the one that runs on Linux' own.
    TESTS = {
      HTTPTest => %w[
        pipelined_requests_are_answered_in_their_order a_chunked_body_comes_decoded
        a_client_that_has_ended_its_side_is_still_answered a_client_that_ends_its_side_within_a_request_is_let_go
        a_refusal_reaches_a_client_that_is_still_sending
      ],
      SlowClientsTest => %w[
        a_thousand_clients_that_dribble_cost_nobody_anything beyond_the_limit_the_app_is_held_back
      ],
      ForkTest => %w[a_child_answers_nobody_and_closes_no_connection],
      SupervisorTest => %w[it_waits_without_turning],
      RestartTest => %w[connections_that_are_idle_while_the_workers_are_restarted_get_another_answer],
      RecyclingTest => %w[a_worker_that_has_grown_is_replaced],
      KilledWorkerTest => %w[kill_9_of_a_worker_loses_only_what_it_held],
      StandbyTest => %w[a_standby_serves_while_the_reactor_blocks_without_the_lock],
      HandOverTest => %w[
        of_2_workers_the_one_that_is_not_stuck_gets_the_connections_of_the_others_and_keeps_them
        a_request_goes_with_its_body_and_with_those_behind_it
      ],
      LaneTest => %w[a_connection_comes_back_from_the_lane],
      ReliefTest => %w[a_relief_worker_serves_while_all_2_are_stuck_and_retires_when_it_is_calm],
      TellingTest => %w[a_call_that_holds_the_lock the_command_shows_a_table_for_people]
    }.freeze

    def self.compile
      return if @compiled

      output, status = Open3.capture2e("bundle", "exec", "rake", "compile:fallbacks", chdir: Test::ROOT)
      raise output unless status.success?

      @compiled = true
    end

    def setup
      OnFallbacks.compile
      super
    end

    def with_server(*arguments, ruby_flags: [], **options, &)
      super(*arguments, ruby_flags: [*FLAGS, *ruby_flags], **options, &)
    end

    def shared_server(*arguments, **options) = super(*arguments, ruby_flags: FLAGS, **options)

    def fairlead(*arguments, folder: server.directory)
      Open3.capture2e(RbConfig.ruby, *FLAGS, "-I", File.join(Test::ROOT, "lib"), File.join(Test::ROOT, "exe/fairlead"), *arguments, chdir: folder)
    end

    TESTS.each do |tests, names|
      names = names.map { |name| "test_#{name}" }
      missing = names - tests.public_instance_methods.map(&:to_s)
      raise "#{tests} has no #{missing.join(", ")}" if missing.any?

      chosen = Class.new(tests) do
        prepend OnFallbacks
        define_singleton_method(:runnable_methods) { names }
      end
      Fairlead.const_set("#{tests.name[/\w+\z/]}#{name[/\w+\z/]}", chosen)
    end

    # That it is indeed what runs, and that nothing goes round it.
    class CompiledTest < Test
      prepend OnFallbacks

      ONLY_LINUX = %r{
        \b(epoll_\w+|eventfd|timerfd_\w+|signalfd|accept4|pipe2|gettid|prctl|memfd_create|syscall|SIOCOUTQ|TCP_NOTSENT_LOWAT)\b|
        \b(SOCK_CLOEXEC|SOCK_NONBLOCK|SOCK_SEQPACKET|pthread_getcpuclockid|pthread_setname_np)\b|
        /proc/|<linux/|<sys/(epoll|eventfd|timerfd|signalfd|prctl|syscall)\.h>
      }x
      # Where lib/ asks /proc, and what it does elsewhere.
      OTHER_WAYS = {
        "active_record/cpu_idle.rb" => "rescue SystemCallError\n        1.0 # a system without it",
        "control/memory_limit.rb" => "      nil\n    rescue SystemCallError\n      nil",
        "control/process_usage.rb" => "linux ? from_proc(pid) : from_ps(pid)",
        "control/socket_namespace.rb" => "Platform::LINUX ? SocketNamespace::Abstract.new : SocketNamespace::Folder.new",
        "hot_restart/start_command.rb" => "rescue SystemCallError\n        nil",
        "serving/server.rb" => "return 10_000 unless Platform::LINUX"
      }.freeze

      def test_the_server_has_none_of_what_only_linux_has
        platform = 'run ->(env) { [200, {}, [Fairlead::Platform.constants.to_h { |name| [name, Fairlead::Platform.const_get(name)] }.inspect]] }'
        with_server(platform) do |server|
          expected = { POLLER: "epoll", PACKETS: Socket::SOCK_DGRAM, LINUX: false }
          assert_equal expected.inspect.chars.sort, server.get("/").body.chars.sort
        end
      end

      def test_without_the_kernels_bound_there_is_one_for_requests_at_once
        with_server('run ->(env) { [200, {}, [Fairlead::Server.allocate.send(:most_fibers).to_s]] }') do |server|
          assert_equal "10000", server.get("/").body
        end
      end

      def test_names_without_a_file_are_refused
        server = with_server("", "--bind", "unix:@name", ready: false)
        assert_equal 1, server.wait_for_end.exitstatus
        assert_includes server.log, "unix:@name: only Linux has names without a file. Bind a path."
      end

      def test_what_only_linux_has_is_called_in_the_files_for_it_alone
        sources = Dir[File.join(ROOT, "ext/**/*.{c,h}")].reject { |path| File.basename(path).match?(/\A(platform|poll_)/) }
        refute_empty sources
        sources.each { |path| refute_match ONLY_LINUX, File.read(path), path }
      end

      def test_what_asks_proc_has_another_way
        library = File.join(ROOT, "lib/fairlead")
        sources = Dir["**/*.rb", base: library].sort.to_h { |path| [path, File.read(File.join(library, path))] }
        assert_equal OTHER_WAYS.keys, sources.select { |_, text| text.match?(%r{"/(proc|sys)/}) }.keys
        OTHER_WAYS.each { |path, text| assert sources.values.any? { |source| source.include?(text) }, path }
      end

      def test_to_ruby_there_is_no_proc
        app = 'run ->(env) { [200, {}, [[File.exist?("/proc/self/stat"), (File.read("/proc/self/stat") rescue $!.class)].inspect]] }'
        with_server(app) { |server| assert_equal "[false, Errno::ENOENT]", server.get("/").body }
      end
    end
  end
end
