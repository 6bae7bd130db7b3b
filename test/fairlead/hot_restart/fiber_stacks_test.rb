# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # Covers hot_restart/fiber_stacks.rb
  class FiberStacksTest < Test
    SIZE = "run ->(_) { [200, {}, [RubyVM::DEFAULT_PARAMS[:fiber_vm_stack_size].to_s]] }"
    UNSET = ServerProcess::STACKS.transform_values { nil }.freeze

    # Each goes nine tenths as deep as it could in a thread of Ruby 3.3. Overflows of C code are not provoked: if one comes within malloc,
    # Ruby waits for ever for malloc's lock.
    DEPTHS = <<~'RUBY'
      require "json"
      def nested(levels) = levels.times.reduce([]) { |array, _| [array] }
      def descend(levels) = levels.zero? ? 0 : [1].each { |_| descend(levels - 1) }
      def plain(levels) = levels.zero? ? 0 : plain(levels - 1)
      WORK = {
        "/calls" => -> { plain(9_000) },
        "/blocks" => -> { descend(1_150) },
        "/inspect" => -> { nested(1_040).inspect },
        "/json" => -> { JSON.generate(nested(6_000), max_nesting: 0) },
        "/marshal" => -> { Marshal.dump(nested(4_200)) },
        "/pattern" => -> { Regexp.new("#{"(" * 1_240}a#{")" * 1_240}").match?("a") or raise "no match" },
        "/subexpression" => -> { /\A(?<pair>\(\g<pair>?\))\z/.match?("(" * 2_000 + ")" * 2_000) or raise "no match" }
      }
      run(->(env) { WORK.fetch(env["PATH_INFO"]).call && [200, {}, ["whole"]] })
    RUBY

    def test_a_request_goes_as_deep_as_a_thread
      with_server(DEPTHS, env: UNSET) do |server|
        %w[/calls /blocks /inspect /json /marshal /pattern /subexpression].each { |path| assert_equal "whole", server.get(path).body, path }
        refute_match(/depth/, server.log)
      end
    end

    def test_what_is_set_stays_and_the_banner_tells_of_shallow_fibers
      with_server(SIZE, env: UNSET.merge("RUBY_FIBER_VM_STACK_SIZE" => "262144")) do |server|
        assert_equal "262144", server.get.body
        assert_match(/^  depth      less than a thread's: .* Set RUBY_FIBER_VM_STACK_SIZE to 1048576\.$/, server.log)
      end
    end

    def test_the_process_that_starts_anew_is_the_one_that_was_started_with_its_sockets_and_its_folder
      listener = TCPServer.new("127.0.0.1", 0)
      app = "run ->(_) { [200, {}, [Dir.pwd, ENV.fetch(\"GIVEN\"), ENV.key?(\"LISTEN_FDS\").to_s].map { |part| \"\#{part} \" }] }"
      with_server(app, env: { **UNSET, "LISTEN_FDS" => "1", "GIVEN" => "a b" }, spawn_options: { 3 => listener }) do |server|
        assert_includes server.addresses, "http://127.0.0.1:#{listener.addr[1]}"
        assert_equal "#{server.directory} a b false ", server.get.body
        server.stop
        assert_equal 0, server.status.exitstatus
      end
    ensure
      listener.close
    end

    # What the first process of an older version does not know.
    def test_new_code_of_a_version_that_sets_it_takes_over_from_one_that_does_not
      older = "ENV.delete(\"RUBY_FIBER_VM_STACK_SIZE\"); Fairlead::FiberStacks.singleton_class.define_method(:ensure) { nil }"
      with_server(SIZE, env: UNSET, files: { "older.rb" => "require \"fairlead/parts\"\n#{older} unless ENV[\"FAIRLEAD_PARENT\"]" },
                       ruby_flags: ["-r./older.rb"]) do |server|
        assert_equal "131072", server.get.body
        assert_equal "1048576", after_restart(server)
      end
    end

    def test_a_command_that_means_something_else_by_now_is_not_repeated
      with_server(SIZE, env: UNSET, ruby_flags: ["-C", "."]) { |server| assert_equal "131072", server.get.body }
    end

    def test_who_forgets_what_is_set_does_not_start_it_anew_for_ever
      app = "run ->(_) { [200, {}, [\"served\"]] }"
      files = { "forget.rb" => "ENV.delete_if { |name, _| name.start_with?(\"RUBY\") }" }
      with_server(app, env: UNSET, files:, ruby_flags: ["-r./forget.rb"]) { |server| assert_equal "served", server.get.body }
    end

    def test_new_code_goes_as_deep
      with_server(SIZE, env: UNSET) { |server| assert_equal "1048576", after_restart(server) }
    end

    private

    # @return [String] what new code answers.
    def after_restart(server)
      server.write("config.ru", SIZE.sub("[200", "[201"))
      server.signal(:USR2)
      eventually("new code serves") { server.get.code == "201" }
      server.get.body
    end
  end
end
