# frozen_string_literal: true

require "rbconfig"

module Fairlead
  # How this server was started, so that it can be started once more, with new code: its command, its environment and
  # its folder, as they were before the app changed any of them.
  class Launch
    # What was meant for this very process.
    OWN = %w[LISTEN_FDS LISTEN_PID LISTEN_FDNAMES NOTIFY_SOCKET FAIRLEAD_PARENT].freeze
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

    private

    def followed(path, real) = path.start_with?("#{real}/") ? folder + path.delete_prefix(real) : path
  end
end
