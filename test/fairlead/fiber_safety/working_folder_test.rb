# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # Dir.chdir within requests that wait: each is in its folder, or is refused as Ruby refuses threads.
  # Covers fiber_safety/file_lock.rb
  class WorkingFolderTest < Test
    APP = <<~'RUBY'
      require "fileutils"
      ROOT = __dir__
      REFUSED = "conflicting chdir during another chdir block"
      folder = ->(name) { File.join(ROOT, name) }
      here = -> { sleep 0.05; [`sleep 0.02; basename $(pwd)`.strip, File.basename(Dir.pwd)].uniq.join("+") }
      WAYS = {
        "block" => ->(name) { Dir.chdir(folder[name]) { here.call } },
        "cd" => ->(name) { FileUtils.cd(folder[name]) { here.call } },
        "fchdir" => ->(name) { Dir.open(folder[name]) { |dir| Dir.fchdir(dir.fileno) { here.call } } },
        "instance" => ->(name) { Dir.open(folder[name]) { |dir| dir.chdir { here.call } } },
        "nested" => ->(name) { Dir.chdir(ROOT) { sleep 0.01; Dir.chdir(name) { here.call } } },
        "enumerator" => lambda do |name|
          Dir.chdir(ROOT) do
            all = Enumerator.new { |found| Dir.chdir(name) { found << here.call } }
            all.next.tap { loop { all.next } } # Ruby refuses all other threads until the inner block has ended
          end
        end,
        "writes" => ->(name) { Dir.chdir(folder[name]) { sleep 0.03; File.write("of-#{name}", ""); name } },
        "timeout" => ->(name) { Dir.chdir(folder[name]) { Timeout.timeout(0.03) { sleep 1 } } rescue name },
        "missing" => ->(name) { Dir.chdir(folder["none"]) { "?" } rescue name }
      }
      OTHERS = {
        "no-block" => -> { Dir.chdir(ROOT); "changed" },
        "task" => -> { Dir.chdir(folder["a"]) { Async { Dir.chdir(folder["b"]) { "within" } }.wait } },
        "thread" => -> { Dir.chdir(folder["a"]) { Thread.new { Dir.chdir(folder["b"]) { "within" } }.value } },
        "hold" => -> { Dir.chdir(folder["a"]) { File.write(File.join(ROOT, "held"), ""); sleep 0.5; "held" } },
        "pwd" => -> { Dir.pwd }
      }
      run lambda { |env|
        way, name = env["PATH_INFO"].delete_prefix("/"), env["QUERY_STRING"]
        answer = begin
          WAYS.key?(way) ? WAYS[way].call(name) : OTHERS.fetch(way).call
        rescue RuntimeError => error
          error.message == REFUSED ? "refused" : raise
        end
        [200, {}, [answer.to_s]]
      }
    RUBY

    FOLDERS = %w[a b c d].freeze

    def server
      shared_server(APP, files: FOLDERS.to_h { |name| ["#{name}/kept", ""] })
    end

    %w[block cd fchdir instance nested enumerator writes timeout missing].each do |way|
      define_method("test_#{way}_is_in_its_own_folder_or_refused") do
        answers = in_threads(8) { |n| Array.new(5) { |k| FOLDERS[(n + k) % 4].then { |name| [name, ask("#{way}?#{name}")] } } }.flatten(1)
        wrong = answers.reject { |name, answer| [name, "refused"].include?(answer) }
        assert_empty wrong
        assert_operator answers.count { |name, answer| name == answer }, :>, 0
        assert_equal server.directory, ask("pwd")
        FOLDERS.each { |name| assert_empty Dir.glob(File.join(server.path(name), "of-*")) - [File.join(server.path(name), "of-#{name}")] }
      end
    end

    def test_a_change_without_a_block_is_refused_while_another_request_is_in_its_own
      holds = Thread.new { ask("hold") }
      eventually("it is in its block") { File.exist?(server.path("held")) }
      assert_equal "refused", ask("no-block")
      assert_equal "refused", ask("block?b")
      assert_equal "held", holds.value
      assert_equal "changed", ask("no-block")
      assert_equal "b", ask("block?b")
    end

    def test_tasks_and_threads_of_a_request_are_others
      assert_equal "refused", ask("task")
      assert_equal "refused", ask("thread")
      assert_equal server.directory, ask("pwd")
    end

    private

    def ask(target) = server.get("/#{target}").body

    def in_threads(count, &block) = Array.new(count) { |n| Thread.new { block.call(n) } }.map(&:value)
  end
end
