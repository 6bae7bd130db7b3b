# frozen_string_literal: true

require_relative "fairlead/parts"

# An app's Gemfile loads this file after Rails, and the railtie makes the app ready for fibers.
require_relative "fairlead/integrations/rails/railtie" if defined?(Rails::Railtie)

# Under `bin/rails server` and `rackup` it is about to be served, perhaps by Fairlead.
require_relative "fairlead/rackup/rackup" if defined?(Rackup::Server) || (defined?(Rack::Server) && !Rack.autoload?(:Server))
