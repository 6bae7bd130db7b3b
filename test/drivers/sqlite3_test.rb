# frozen_string_literal: true

require_relative "../helper"
require "open3"
require "tmpdir"

module Fairlead
  # A fiber that waits for SQLite's lock is interrupted: another thread may use its connection then. It would wait for SQLite's
  # mutex with Ruby's lock, so a process of its own does.
  # Covers drivers/sqlite3.rb
  class Sqlite3Test < Test
    SCRIPT = <<~RUBY
      require "async"
      require "sqlite3"
      require "fairlead/drivers/sqlite3" if ARGV.delete("drivers")
      Fairlead::Drivers::SQLite3.guard if ARGV.delete("guard")
      path, way = ARGV
      holder, waiter = Array.new(2) { SQLite3::Database.new(path) }
      waiter.busy_handler_timeout = 20_000
      holder.execute("CREATE TABLE IF NOT EXISTS things (id integer)")
      holder.execute("BEGIN IMMEDIATE")
      started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      Sync do
        task = Async do
          way == "batch" ? waiter.execute_batch2("INSERT INTO things VALUES (1)") : waiter.execute("INSERT INTO things VALUES (1)")
        end
        sleep 0.05
        task.cancel
        task.wait
        print task.status, " "
      end
      holder.execute("ROLLBACK")
      Thread.new { waiter.execute("INSERT INTO things VALUES (2)") }.join
      print holder.execute("SELECT * FROM things").flatten, Process.clock_gettime(Process::CLOCK_MONOTONIC) - started < 10
    RUBY

    %w[statement batch].each do |way|
      define_method("test_an_interrupted_#{way}_leaves_the_connection_usable") { assert_equal "cancelled [2]true", try(way, "drivers") }

      # As before sqlite3 2.10.2.
      define_method("test_so_does_the_guard_with_a_#{way}") { assert_equal "cancelled [2]true", try(way, "drivers", "guard") }
    end

    private

    def try(way, *options)
      Dir.mktmpdir("fairlead-") do |folder|
        script = File.join(folder, "try.rb")
        File.write(script, SCRIPT)
        command = ["timeout", "-s", "KILL", "15", RbConfig.ruby, "-I", File.join(ROOT, "lib"), script, File.join(folder, "db"), way, *options]
        said, status = Open3.capture2e(*command)

        assert_predicate status, :success?, said
        said
      end
    end
  end
end
