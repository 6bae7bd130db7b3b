# frozen_string_literal: true

# All options: their table, their sources, and the reference page.
# Called by cli, rackup, integrations, serving, supervision and doctor.
# Calls no other room.

require "did_you_mean"
require "etc"
require "socket"
require_relative "parts"

module Fairlead
  # Defined before its parts open it: else they would have it loaded again.
  class Configuration; end
end

require_relative "configuration/network"
require_relative "configuration/option"
require_relative "configuration/table"
require_relative "configuration/script"

module Fairlead
  # Every option's value. Flags (or overrides in Ruby) override environment variables, those the configuration file, and
  # that the defaults. {TABLE} lists the options.
  #
  #   Configuration.new(workers: 2).workers  # => 2
  #   Configuration.load.drain_timeout       # => 30.0, or what config/fairlead.rb says
  class Configuration
    autoload :PumaFile, "fairlead/configuration/puma_file"

    # The configuration file if none is named, relative to the current folder.
    DEFAULT_FILE = "config/fairlead.rb"

    PRECEDENCE = %i[default file environment override].freeze
    private_constant :PRECEDENCE

    # Reads overrides, variables and the file, as the command does.
    #
    # @param file [String, false, nil] a configuration file; nil: {DEFAULT_FILE} if it exists; false: none
    # @param variables [Hash] environment variables.
    # @param overrides [Hash{Symbol => Object}] see {#initialize}
    # @raise [ConfigurationError] naming the mistake, its place and the remedy
    def self.load(file = nil, variables: ENV, **overrides)
      new(**overrides).read(file, variables)
    end

    # @return [String, nil] the configuration file that was read
    attr_reader :file

    # @param overrides [Hash{Symbol => Object}] option => value. Reads no file and no environment variable.
    # @raise [ConfigurationError]
    def initialize(**overrides)
      @settings = {}
      @hooks = HOOKS.to_h { |name, _| [name, []] }
      overrides.each { |name, value| set(name, value, from: :override, at: name.to_s) }
    end

    (TABLE.values - [TABLE[:bind]]).each do |option|
      define_method(option.name) do
        setting = @settings[option.name]
        setting ? setting.value : option.default_value(self)
      end
    end

    # Sets one option, unless a place with precedence has set it. Values of a list from the same place add up.
    #
    # @param name [Symbol]
    # @param value [Object] see {Option#check}
    # @param from [Symbol] :file, :environment or :override.
    # @param at [String] the place of the value, for errors and {#source}
    # @raise [ConfigurationError]
    def set(name, value, from: :override, at: name.to_s)
      option = TABLE[name] or raise ConfigurationError, unknown(name, at)
      value = option.check(value, at)
      old = @settings[name]
      if old
        return if PRECEDENCE.index(old.from) > PRECEDENCE.index(from)

        value = old.value + value if option.list? && old.from == from
      end
      @settings[name] = Setting.new(value, from, at)
    end

    # A port without a host (http://:3000) means 127.0.0.1 in development and test, and every interface elsewhere.
    #
    # @return [Array<String>] the addresses to serve
    def bind
      uris = @settings[:bind]&.value || TABLE[:bind].default_value(self)
      uris.map { |uri| uri.sub(%r{\A(\w+://)(?=:\d+(?:\?|\z))}) { "#{Regexp.last_match(1)}#{default_host}" } }
    end

    # @return [String, nil] where only metrics are served; nil if the option names a path of the app's addresses.
    def metrics_address = (metrics unless metrics&.start_with?("/"))

    # @return [Float] seconds until a process that drains is ended.
    def longest_drain = [drain_timeout, stream_drain_timeout].compact.max

    # @return [String] the place of an option's value: "config/fairlead.rb:3", "--workers", "default"
    def source(name) = @settings[name]&.at || "default"

    # @return [Symbol] :default, :file, :environment or :override.
    def origin(name) = @settings[name]&.from || :default

    # Adds an address with a port only (see {#bind}).
    #
    # @raise [ConfigurationError]
    def set_port(port, from: :override, at: "port")
      number = Integer(port.to_s, 10, exception: false)
      unless number && (0..65_535).cover?(number)
        raise ConfigurationError, "#{at}: a port is a whole number from 0 to 65535, not #{port.inspect}."
      end

      set(:bind, "http://:#{number}", from:, at:)
    end

    # Adds a block to a hook. Blocks run in the order they were added.
    def hook(name, &block)
      @hooks.fetch(ALIASES.fetch(name, name)) << block
    end

    # @return [Boolean] whether a hook has a block.
    def hooked?(name) = @hooks.fetch(ALIASES.fetch(name, name)).any?

    # Runs the blocks of a hook.
    def run_hook(name, *arguments)
      @hooks.fetch(name).each { |block| block.call(*arguments) }
    end

    # Reads the environment and the configuration file, see {.load}.
    #
    # @return [self]
    def read(file = nil, variables = ENV)
      read_environment(variables)
      file = DEFAULT_FILE if file.nil? && File.exist?(DEFAULT_FILE)
      read_file(file) if file
      self
    end

    # Sets RACK_ENV and RAILS_ENV, at which frameworks look, to the environment of this configuration. A variable from which that was
    # read stays.
    def export_environment
      %w[RACK_ENV RAILS_ENV].each { |name| ENV[name] = environment unless origin(:environment) == :environment && ENV[name] }
      # New Relic's agent measures threads, unless its server is the one of whose fibers it knows.
      ENV["NEW_RELIC_DISPATCHER"] ||= "falcon"
    end

    # @param variables [Hash]
    # @raise [ConfigurationError] naming the variable.
    def read_environment(variables)
      TABLE.each_value do |option|
        name = option.variables.find { |variable| !variables.fetch(variable, "").empty? } or next
        set(option.name, variables[name], from: :environment, at: "the environment variable #{name}")
      end
      return if variables.fetch("PORT", "").empty? || origin(:bind) == :environment

      set_port(variables["PORT"], from: :environment, at: "the environment variable PORT")
    end

    # @param path [String]
    # @raise [ConfigurationError] naming file and line.
    def read_file(path)
      @file = path
      Script.new(self, path).read
    end

    # The words of the configuration file.
    # @return [Array<Symbol>]
    def self.words = TABLE.keys + HOOKS.keys + ALIASES.keys + [:port]

    # @return [String] " Did you mean `workers`?", or nothing.
    def self.suggestion(word, words = self.words)
      nearest = DidYouMean::SpellChecker.new(dictionary: words.map(&:to_s)).correct(word.to_s).first
      nearest ? " Did you mean `#{nearest}`?" : ""
    end

    # @param options [Hash] whose names may be strings, in any case
    # @param ignored [Array<Symbol>] names that are left out without a warning
    # @yieldparam name [Symbol] of an unknown option
    # @yieldreturn [String] its place, for a warning
    # @return [Hash{Symbol => Object}] those that exist
    def self.known(options, ignored = [])
      options = options.transform_keys { |name| name.to_s.downcase.to_sym }.except(*ignored)
      (options.keys - TABLE.keys).each do |name|
        warn "fairlead: #{yield name}: there is no such option, and it is ignored.#{suggestion(name, TABLE.keys)}"
      end
      options.slice(*TABLE.keys)
    end

    Setting = Data.define(:value, :from, :at)
    private_constant :Setting

    private

    def default_host
      return "127.0.0.1" if %w[development test].include?(environment)

      # One socket for IPv4 and IPv6, if the machine has IPv6.
      Socket.ip_address_list.any? { |address| address.ipv6? && !address.ipv6_loopback? } ? "[::]" : "0.0.0.0"
    end

    def unknown(name, at)
      "#{at}: there is no option `#{name}`.#{self.class.suggestion(name, TABLE.keys)}"
    end
  end
end
