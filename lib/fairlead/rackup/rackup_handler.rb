# frozen_string_literal: true

require "fileutils"
require_relative "rackup"

module Fairlead
  # Serves an app for `rackup -s fairlead`, `bin/rails server` and whatever else starts servers through Rackup or Rack 2: the handlers named
  # Fairlead there extend this module.
  #
  # Options have the same precedence as with the command: given ones before environment variables, and those before config/fairlead.rb. What
  # Rackup and Rails merely assume (port 9292 or 3000, localhost) comes last.
  module RackupHandler
    # In these environments one process serves in the foreground, where a debugger's prompt works.
    LOCAL = %w[development test].freeze

    # What Rackup assumes without an address.
    ASSUMED = { Host: ["localhost", "0.0.0.0"], Port: ["9292"] }.freeze

    # Options of Rackup, Rails and other callers that Fairlead does not need, or reads elsewhere.
    IGNORED = %i[
      AccessLog DoNotReverseLookup Host Port builder caching config daemonize environment heapfile include
      log_stdout pid profile_file profile_mode quiet require restart_cmd server user_supplied_options warn
    ].freeze

    # Options that have no effect here: Rackup has its own, and has loaded the app already.
    UNSUITED = %i[bind rackup environment preload].freeze
    private_constant :LOCAL, :ASSUMED, :IGNORED, :UNSUITED

    # Serves the app until a signal, or {shutdown}, ends it.
    #
    # @param app [#call] a Rack app.
    # @param options [Hash] :Host, :Port, and every option of Fairlead's configuration by its name.
    # @yieldparam server [#stop] before it serves.
    def run(app, **options)
      ::Fairlead.serving!
      Isolation.establish
      configuration = configuration({ config: "a #{app.class}", **options })
      FileUtils.rm_f(options[:pid]) if options[:pid] && ParentLink.current # a copy's own; that of the first process stays
      @server = Supervision.server(configuration, start_command(options), app:)
      yield @server if block_given?
      status = @server.run
      exit(status) unless status.zero?
    rescue Error => error
      exit(1) if ParentLink.current&.failed(error.message)
      abort "fairlead: #{error.message}"
    end

    # Stops what {run} began, from any thread.
    def shutdown
      @server&.stop
    end

    # @return [Hash{String => String}] what `rackup -s fairlead -O name=value` takes.
    def valid_options
      named = Configuration::TABLE.except(*UNSUITED).to_h do |name, option|
        ["#{name}=#{option.placeholder}", "#{option.description} Default: #{option.default_in_words}."]
      end
      { "Host=HOST" => "Address to serve (default: localhost)",
        "Port=PORT" => "Port to serve (default: 9292)", **named }
    end

    def configuration(options)
      configuration = Configuration.load
      configuration.set(:environment, options[:environment].to_s, from: :default) if options[:environment]
      configuration.set(:workers, 0, from: :default) if LOCAL.include?(configuration.environment)
      configuration.set(:bind, addresses(options), from: asked?(options) ? :override : :default,
                                                   at: "the address given to the server")
      # The app is loaded already, whatever the configuration file names.
      served = options[:builder] || options[:config]
      configuration.set(:rackup, served, at: "what is given to the server") if served
      named(options).each { |name, value| configuration.set(name, value, at: "-O #{name}") }
      configuration
    end

    private

    # As Rails says, or as `rackup` was started. In any other program the server is only a part.
    def start_command(options)
      # The copy of a daemon would detach itself from the sockets.
      return if options[:daemonize]

      command = if options[:restart_cmd] then StartCommand.parse(options[:restart_cmd])
                elsif File.basename($PROGRAM_NAME) == "rackup" then StartCommand.current
                end
      command&.tap { command.pid_file = options[:pid] }
    end

    # Whether the user chose host or port. Rails reports that; with Rackup, only a value other than its own shows it.
    def asked?(options)
      given = options.slice(:Host, :Port).compact
      if (supplied = options[:user_supplied_options])
        given.keys.intersect?(supplied)
      else
        given.any? { |name, value| !ASSUMED[name].include?(value.to_s) }
      end
    end

    def addresses(options)
      host = options[:Host] || "localhost"
      port = options[:Port] || 9292
      case host
      when %r{\A[a-z]+:/}, /\Aunix:/ then [host]
      when %r{\A/} then ["unix:#{host}"]
      when /:/ then ["http://[#{host.delete("[]")}]:#{port}"]
      else ["http://#{host}:#{port}"]
      end
    end

    # Rails passes nil for options that nobody has set.
    def named(options) = Configuration.known(options.compact.except(*IGNORED)) { |name| "-O #{name}" }
  end
end
