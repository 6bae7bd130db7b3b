# frozen_string_literal: true

require "open3"
require_relative "outcome"

module Fairlead
  class Suite
    # Runs one entry at a time, with database servers that no other lane uses.
    class Lane
      URLS = { "TEST_DATABASE_URL" => "postgresql", "TEST_MARIADB_URL" => "mariadb", "TEST_REDIS_URL" => "redis" }.freeze
      private_constant :URLS

      # @param index [Integer] the first lane uses the servers that `bin/services start` starts.
      # @param folder [String] for the output of the entries.
      # @param databases [Boolean] whether the entries get any.
      def initialize(index, folder, databases:)
        @index = index
        @folder = folder
        @databases = databases
        @environment = URLS.transform_values { nil }
      end

      # Starts the database servers unless they run already.
      def open
        return unless @databases

        services_folder = services("folder") + ("-#{@index + 1}" if @index.positive?).to_s
        @environment["FAIRLEAD_SERVICES"] = services_folder
        @started = !system(@environment, PROGRAM, "status", out: File::NULL, err: File::NULL)
        services("start") if @started
        URLS.each { |variable, service| @environment[variable] = services("url", service) }
      end

      # Ends what still runs, and the servers if {#open} has started them.
      def close
        kill if @pid
        services("stop") if @started
      end

      def idle? = @pid.nil?

      # @param entry [TestFile, CoreTarget]
      # @param timing [Boolean] whether to run the promises about time, or the other tests.
      def start(entry, timing:)
        @entry = entry
        @timing = timing
        @log = File.join(@folder, "#{entry.name.tr("/ ", "-_")}#{"-timing" if timing}.log")
        @records = "#{@log}.records"
        @deadline = now + entry.limit
        @started_at = now
        @pid = fork { become(entry) }
      end

      # @return [Outcome, nil] of the entry once it has ended, or has taken too long.
      def outcome
        return if idle?

        before = cpu_seconds
        _, status = Process.wait2(@pid, Process::WNOHANG)
        return if status.nil? && now < @deadline

        late = status.nil?
        kill
        @pid = nil
        Outcome.new(@entry, timing: @timing, status:, late:, seconds: now - @started_at, cpu_seconds: cpu_seconds - before, log: @log, records: @records)
      end

      private

      PROGRAM = File.join(ROOT, "bin/services").freeze
      private_constant :PROGRAM

      def become(entry)
        Process.setpgid(0, 0)
        $stdin.reopen(File::NULL)
        $stdout.reopen(@log, "w")
        $stderr.reopen($stdout)
        $stdout.sync = true
        ENV.update(@environment)
        entry.run(@records, timing: @timing)
      end

      # Nothing that an entry started may go on beside the next one.
      def kill
        Process.kill(:KILL, -@pid)
        Process.wait(@pid)
      rescue Errno::ESRCH, Errno::ECHILD
        nil
      end

      def services(*arguments)
        said, status = Open3.capture2e(@environment, PROGRAM, *arguments)
        raise "bin/services #{arguments.join(" ")}: #{said}" unless status.success?

        said.chomp
      end

      # Of the processes that have been waited for, and of those that they have waited for.
      def cpu_seconds = Process.times.then { |times| times.cutime + times.cstime }

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
