# frozen_string_literal: true

require "rails/generators/base"

module Fairlead
  module Generators
    # `bin/rails generate fairlead:install`
    class InstallGenerator < ::Rails::Generators::Base
      source_root File.expand_path("templates", __dir__)
      desc "Writes config/fairlead.rb, with what an app may want to set."

      def create_configuration
        template "fairlead.rb.tt", "config/fairlead.rb"
      end
    end
  end
end
