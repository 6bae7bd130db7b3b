# frozen_string_literal: true

require "fairlead/parts"

module Fairlead
  # Makes Fairlead the default server of `bin/rails server` and `rackup`. Loaded with the gem if Rackup, or its predecessor in Rack
  # 2, is loaded.
  module Rackup
    HANDLER = "fairlead"
    VARIABLES = %w[RACKUP_HANDLER RACK_HANDLER].freeze
    # The commands by which nothing but a server is started.
    STARTERS = %w[rackup rails].freeze
    private_constant :VARIABLES, :STARTERS

    # @param name [String, Symbol, nil] the handler that `-s` or `-u` names.
    # @return [Boolean] whether Rackup will serve with Fairlead.
    def self.chosen?(name)
      name = ENV.values_at(*VARIABLES).compact.first if name.nil?
      name.nil? || name.to_s == HANDLER
    end

    # @return [Module, nil] the module that has `Server` and `Handler`; nil: none is loaded.
    def self.starter
      return ::Rackup if defined?(::Rackup::Server) && defined?(::Rackup::Handler)

      ::Rack if defined?(::Rack::Server) && !::Rack.autoload?(:Server)
    end

    # Rackup would try Puma first. An app with Fairlead in its Gemfile gets Fairlead, unless a variable says otherwise.
    module Default
      # (see Rackup::Handler.default)
      def default = Rackup.chosen?(nil) ? get(HANDLER) : super
    end

    # Runs before config.ru is loaded: an app's initializers may ask whether Fairlead serves.
    module Server
      # (see Rackup::Server#app)
      def app
        Fairlead.serving! if Rackup.chosen?(options[:server])
        super
      end

      private

      # Rackup removes its pid file at exit, which the exit of a worker must not do.
      def at_exit
        owner = Process.pid
        super { yield if Process.pid == owner }
      end
    end

    def self.install
      FiberStacks.ensure { StartCommand.current } if STARTERS.include?(File.basename($PROGRAM_NAME)) && starting?
      return if starter.name == "Rackup" && !Compatibility.fits?(:rackup)

      starter::Handler.singleton_class.prepend(Default)
      starter::Server.prepend(Server)
      Fairlead.serving! if serving_already?
      report_failure_at_exit if ParentLink.current
    end

    # A hot restart has started this process: if the app cannot be loaded, the init process reports why.
    def self.report_failure_at_exit
      owner = Process.pid
      at_exit do
        error = $!
        next if owner != Process.pid || error.nil? || error.is_a?(SystemExit) || error.is_a?(SignalException)

        ParentLink.current.failed(AppLoader.failure("config.ru", error, false))
      end
    end

    # Under `rackup`, a Rails app loads this gem while its config.ru is being loaded.
    def self.serving_already?
      loading = caller_locations.any? do |place|
        place.base_label == "app" && place.path.match?(%r{/rack(up)?/server\.rb\z})
      end
      return false unless loading

      ObjectSpace.each_object(starter::Server).any? { |server| chosen?(server.options[:server]) }
    end

    # @return [Boolean] whether this process is about to load and serve an app with Fairlead. It may have loaded the app already, or just
    #   print a server's options.
    def self.starting?
      ObjectSpace.each_object(starter::Server).any? do |server|
        server.instance_variable_get(:@options) && !server.instance_variable_get(:@app) && chosen?(server.options[:server])
      end
    end
    private_class_method :serving_already?, :starting?, :report_failure_at_exit

    install if starter
  end
end
