# frozen_string_literal: true

require "fileutils"
require "rbconfig"
require "shellwords"
require_relative "parts"

module Fairlead
  # How this server was started, so that it can be started once more, with new code: its command, its environment and
  # its folder, as they were before the app changed any of them.
  class Launch
    # What was meant for this very process.
    OWN = %w[LISTEN_FDS LISTEN_PID LISTEN_FDNAMES NOTIFY_SOCKET FAIRLEAD_PARENT FAIRLEAD_LISTENERS].freeze
    COMMAND_LINE = "/proc/self/cmdline"
    private_constant :OWN, :COMMAND_LINE

    # To be called before anything else is loaded, or the title of the process changed.
    #
    # @return [Launch]
    def self.present
      command = File.exist?(COMMAND_LINE) ? File.read(COMMAND_LINE).split("\0", -1)[0..-2] : [RbConfig.ruby, $PROGRAM_NAME, *ARGV]
      # `bundle exec` is run once more, and finds the Gemfile as it did the first time.
      bundled = command.any? { |word| File.basename(word) == "bundle" } && defined?(::Bundler)
      new(command, (bundled ? ::Bundler.original_env : ENV.to_h).except(*OWN), folder)
    end

    # Of a server whose framework says how it is started once more.
    #
    # @param line [String] as it would be typed.
    # @return [Launch]
    def self.of(line) = new(Shellwords.split(line), ENV.to_h.except(*OWN), Dir.pwd)

    # Where a link like `current` leads elsewhere after a deployment, its name counts, and not where it led.
    def self.folder
      named = ENV["PWD"]
      named&.start_with?("/") && File.identical?(named, ".") ? named : Dir.pwd
    end
    private_class_method :folder

    # @return [Array<String>]
    attr_reader :command
    # @return [Hash{String => String}]
    attr_reader :variables
    # @return [String]
    attr_reader :folder
    # @return [String, nil] a file that it must not find when it takes this process' place: a framework would take it for
    #   another server's.
    attr_accessor :obsolete

    def initialize(command, variables, folder, real: Dir.pwd)
      @folder = folder
      @command = command.map { |word| followed(word, real) }
      @variables = variables.dup
      @variables["BUNDLE_GEMFILE"] = followed(variables["BUNDLE_GEMFILE"], real) if variables["BUNDLE_GEMFILE"]
    end

    # Starts it.
    #
    # @param more [Hash{String => String}] further environment variables.
    # @param ios [Array<IO>] what it inherits, under the same numbers.
    # @return [Integer] its process id.
    # @raise [SystemCallError]
    def again(more, ios)
      kept = ios.to_h { |io| [io.fileno, io.fileno] }
      # A process group of its own: Ctrl-C is passed on to it, and must not come twice.
      Process.spawn(variables.merge(more), [command.first, command.first], *command.drop(1),
                    unsetenv_others: true, chdir: folder, pgroup: true, close_others: true, **kept)
    end

    # Runs it in the place of this process, as which it gets the sockets: connections wait in them meanwhile.
    #
    # @param listeners [Array<Listener>]
    # @param notify [String, nil] the service manager's address.
    # @raise [SystemCallError]
    def replace(listeners, notify: nil)
      # Until the new one traps them, they would end it.
      %i[USR1 USR2].each { |signal| Signal.trap(signal, "IGNORE") }
      FileUtils.rm_f(obsolete) if obsolete
      given = { **Listener.given(listeners), "NOTIFY_SOCKET" => notify }
      ios = listeners.each_with_index.to_h { |listener, index| [Listener::FIRST_INHERITED + index, listener.io] }
      Process.exec(variables.merge(given), [command.first, command.first], *command.drop(1),
                   unsetenv_others: true, chdir: folder, **ios)
    end

    def to_s = command.join(" ")

    private

    def followed(path, real) = path.start_with?("#{real}/") ? folder + path.delete_prefix(real) : path
  end
end
