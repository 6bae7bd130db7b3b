# frozen_string_literal: true

require "fileutils"
require "rbconfig"
require "shellwords"

module Fairlead
  # How this server was started, so that new code can be started the same way: its command, environment and folder, as they
  # were before the app changed any of them.
  class StartCommand
    # Variables of a service manager that stay valid for a program that replaces this process.
    SERVICE = %w[NOTIFY_SOCKET WATCHDOG_USEC WATCHDOG_PID].freeze
    # Variables that are meant for this very process.
    OWN = [*SERVICE, "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "FAIRLEAD_PARENT", "FAIRLEAD_LISTENERS"].freeze
    COMMAND_LINE = "/proc/self/cmdline"
    # The files that Bundler has found. Version 4 names its lock file too.
    BUNDLE = %w[BUNDLE_GEMFILE BUNDLE_LOCKFILE].freeze
    SECRET = /(--[\w-]*(?:token|secret|password)[\w-]*[= ])\S+/
    private_constant :SERVICE, :OWN, :COMMAND_LINE, :BUNDLE, :SECRET

    class << self
      # To be called before the app is loaded, and before Fairlead changes the title of the process.
      #
      # @param arguments [Array<String>, nil] of the executable; nil: something has consumed them already.
      # @return [StartCommand, nil] nil: the start command is unknown.
      def current(arguments = nil)
        return through_bundler(bundle_exec) if bundle_exec

        command = command_line
        command ||= [RbConfig.ruby, $PROGRAM_NAME, *arguments] if arguments
        new(command, ENV.to_h.except(*OWN), folder) if command
      end

      # @param line [String] the command as it would be typed; a framework says so.
      def parse(line) = new(Shellwords.split(line), ENV.to_h.except(*OWN), folder)

      private

      # `bundle exec` loads a Ruby executable into its own process, and gives the process a title, which overwrites the
      # command line. Its object still has the name and the arguments as they were typed.
      def bundle_exec
        return if $LOADED_FEATURES.none? { |path| path.end_with?("/bundler/cli/exec.rb") }

        ObjectSpace.each_object(::Bundler::CLI::Exec).first
      end

      # Bundler runs again, in the environment that it found: other gems, or another Bundler, may be locked by then.
      def through_bundler(exec)
        variables = ::Bundler.original_env.merge(ENV.slice("BUNDLE_GEMFILE")).except(*OWN)
        bundle = ENV.fetch("BUNDLE_BIN_PATH") { Gem.bin_path("bundler", "bundle") }
        new([RbConfig.ruby, bundle, "exec", exec.cmd, *exec.args.grep(String)], variables, folder)
      end

      # @return [Array<String>, nil] nil where the system has none, or a title has overwritten it.
      def command_line
        ruby, *words = File.read(COMMAND_LINE, encoding: Encoding::UTF_8).split("\0", -1)[0..-2]
        [ruby, *words] if words.any? { |word| File.basename(word) == File.basename($PROGRAM_NAME) }
      rescue SystemCallError
        nil
      end

      # By its name: a link like `current` leads elsewhere after a deployment.
      def folder
        named = ENV["PWD"]
        named&.start_with?("/") && File.identical?(named, ".") ? named : Dir.pwd
      end
    end

    attr_reader :folder
    # @return [String, nil] the pid file of a framework. A copy gets another one, since the framework would refuse to start.
    attr_accessor :pid_file

    def initialize(command, variables, folder)
      @folder = folder
      real = Dir.pwd
      @service = ENV.slice(*SERVICE)
      @command = command.map { |word| followed(word, real) }
      @variables = variables.dup
      BUNDLE.each { |name| @variables[name] = followed(variables[name], real) if variables[name] }
    end

    # @param ios [Array<IO>] the copy inherits them under the same numbers.
    # @raise [SystemCallError]
    def spawn_copy(more, ios = [], **options)
      inherited = ios.to_h { |io| [io.fileno, io.fileno] }
      # In a process group of its own: Ctrl-C is passed on to it, and must not come twice.
      Process.spawn(@variables.merge(more), *program, *(["-P", "#{pid_file}.new"] if pid_file),
                    unsetenv_others: true, chdir: folder, pgroup: true, close_others: true, **inherited, **options)
    end

    # Replaces this process by the command, before it has done anything.
    #
    # @param more [Hash{String => String}] variables
    # @raise [SystemCallError]
    # @see #repeatable?
    def again(more) = replace_process(ENV.slice(*OWN).merge(more))

    # Replaces this process by the command, which gets the listening sockets: connections wait in them meanwhile.
    #
    # @raise [SystemCallError]
    def exec(listeners)
      FileUtils.rm_f(pid_file) if pid_file
      # Under their own numbers: low ones may belong to Ruby itself, which then could not go on if this fails.
      listeners.each { |listener| listener.io.close_on_exec = false }
      replace_process({ **@service, **Listener::InheritedSockets.variables(listeners) })
    end

    # Whether the command means the same once more, in this process' folder: its program may be named from another one (`cd config;
    # ../bin/rails server`), and Ruby may have been told to change the folder, or to read the program from its input.
    def repeatable?
      words = @command.drop(1)
      program = words.find { |word| File.basename(word) == File.basename($PROGRAM_NAME) } or return false
      before = words.take_while { |word| !word.equal?(program) }
      by_name = !program.include?("/") && before.intersect?(%w[exec -S])
      before.grep(/\A-[CXx]/).none? && (by_name || File.exist?(File.expand_path(program, folder)))
    end

    # For logs: without the values of secret options.
    def to_s = @command.join(" ").gsub(SECRET) { "#{$1}…" }

    private

    # @param more [Hash{String => String}] variables
    def replace_process(more)
      # They would end the new program until it traps them.
      %i[USR1 USR2].each { |signal| Signal.trap(signal, "IGNORE") }
      Process.exec(@variables.merge(more), *program, unsetenv_others: true, chdir: folder)
    end

    # Without a shell, also if there are no arguments.
    def program = [[@command.first, @command.first], *@command.drop(1)]

    def followed(path, real) = path.start_with?("#{real}/") ? folder + path.delete_prefix(real) : path
  end
end
