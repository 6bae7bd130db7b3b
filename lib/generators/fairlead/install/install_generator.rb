# frozen_string_literal: true

require "rails/generators/base"

module Fairlead
  module Generators
    # `bin/rails generate fairlead:install`
    class InstallGenerator < ::Rails::Generators::Base
      source_root File.expand_path("templates", __dir__)
      desc "Writes config/fairlead.rb with common options and a limit on database connections."

      # The share of the database's connections; the rest is for consoles, tasks and jobs.
      SHARE = 0.9
      # PostgreSQL's default; MySQL's is higher.
      USUAL = 100
      private_constant :SHARE, :USUAL

      def create_configuration
        template "fairlead.rb.tt", "config/fairlead.rb"
      end

      private

      def database? = defined?(::ActiveRecord::Base) ? true : false

      # SQLite has no limit on its connections.
      def bounded?
        return false if !database? || Fairlead::ActiveRecord.own_pools?

        config = ::ActiveRecord::Base.configurations.configs_for(env_name: ::Rails.env).first
        config && Fairlead::ActiveRecord::WorkerBudget.counts?(config)
      end

      def budget
        @budget ||= begin
          pool = ::ActiveRecord::Base.connection_pool if bounded?
          allowed = Fairlead::ActiveRecord::Limits.allowed_by_server(pool) if pool
          ((allowed || USUAL) * SHARE).floor
        end
      end
    end
  end
end
