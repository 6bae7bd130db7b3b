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

      def explain
        return unless database?

        say <<~TEXT

          With `permanent_connection_checkout :disallowed`, ActiveRecord::Base.connection raises. Where your app or a gem
          calls it, write with_connection { |connection| … }, or set :deprecated for now: the call then works, and the
          log names each place. `fairlead doctor` finds those in your app.
        TEXT
      end

      private

      def database? = defined?(::ActiveRecord::Base) ? true : false

      # SQLite has no limit on its connections.
      def bounded?
        database? && database_config && Fairlead::ActiveRecord::WorkerBudget.counts?(database_config) && !Fairlead::ActiveRecord.own_pools?
      end

      def database_config
        @database_config ||= ::ActiveRecord::Base.configurations.configs_for(env_name: ::Rails.env).first
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
