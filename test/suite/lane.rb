# frozen_string_literal: true

require "open3"
require "securerandom"
require "tmpdir"
require_relative "claims"
require_relative "outcome"

module Fairlead
  class Suite
    # Runs one entry at a time, with database servers and a folder for temporary files that no other lane uses.
    class Lane
      URLS = { "TEST_DATABASE_URL" => "postgresql", "TEST_MARIADB_URL" => "mariadb", "TEST_REDIS_URL" => "redis" }.freeze
      # bin/services failed.
      ServicesError = Class.new(StandardError)
      private_constant :URLS, :ServicesError

      # Clears away what killed runs have left: databases, which may still run, and temporary files.
      #
      # @param databases [Boolean] whether those, too.
      def self.clear_away(databases:)
        Claims.clear_away(PLACE % "??????") { |place| FileUtils.remove_entry_secure(place) if File.exist?(place) }
        Claims.clear_away(FOLDERS) { |folder| system({ "FAIRLEAD_SERVICES" => folder }, PROGRAM, "destroy", out: File::NULL) } if databases
      end

      # @param index [Integer]
      # @param folder [String] for the output of the entries.
      # @param databases [Boolean] whether the entries get any.
      def initialize(index, folder, databases:)
        @index = index
        @folder = folder
        @databases = databases
        @environment = URLS.transform_values { nil }
      end

      # Starts the database servers; once more if they do not start.
      def open
        Claims.take(@place = PLACE % SecureRandom.hex(3))
        Dir.mkdir(@place)
        File.chmod(0o1777, @place) # as /tmp: not all programs run as root
        @environment["TMPDIR"] = @place
        start_services if @databases
      rescue ServicesError => e
        warn "#{e.message}\nOnce more:"
        start_services
      end

      # Ends what still runs, and the servers with their data.
      def close
        kill if @pid
        services("destroy") if @services
      ensure
        FileUtils.rm_rf(@place) if @place
        [@services, @place].compact.each { |folder| Claims.release(folder) }
      end

      def idle? = @pid.nil?

      # @param entry [TestFile, CoreTarget]
      # @param timing [Boolean] whether to run the promises about time, or the other tests.
      # @param only [String, nil] one of them, as "Class#method".
      # @param again [Boolean] whether it has run before: the output of then is kept.
      def start(entry, timing:, only: nil, again: false)
        @entry = entry
        @timing = timing
        @log = File.join(@folder, "#{entry.name.tr("/ ", "-_")}#{"-timing" if timing}#{"-again" if again}.log")
        @records = "#{@log}.records"
        @deadline = now + entry.limit
        @started_at = now
        @pid = fork { become(entry, only) }
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
      # Short, since the path of a socket is limited.
      PLACE = File.join(Dir.tmpdir, "fairlead-%s").freeze
      FOLDERS = "{/var/tmp/fairlead-services-*,#{ROOT}/tmp/services-*}".freeze
      private_constant :PROGRAM, :PLACE, :FOLDERS

      # @raise [ServicesError]
      def start_services
        Claims.take(@services ||= "#{services("folder")}-#{@index + 1}")
        @environment["FAIRLEAD_SERVICES"] = @services
        services("start")
        URLS.each { |variable, service| @environment[variable] = services("url", service) }
      end

      def become(entry, only)
        Claims.forget
        Process.setpgid(0, 0)
        $stdin.reopen(File::NULL)
        $stdout.reopen(@log, "w")
        $stderr.reopen($stdout)
        $stdout.sync = true
        ENV.update(@environment)
        entry.run(@records, timing: @timing, only:)
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
        raise ServicesError, "bin/services #{arguments.join(" ")}: #{said}" unless status.success?

        said.chomp
      end

      # Of the processes that have been waited for, and of those that they have waited for.
      def cpu_seconds = Process.times.then { |times| times.cutime + times.cstime }

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
