# frozen_string_literal: true

require_relative "rails_app"

module Fairlead
  # Rails runs its load hooks for ActionController::Base and for ActionController::API, and Fairlead prepares a process more than once.
  # Covers integrations/rails/live.rb, fiber_safety/fork_guard.rb, active_record/inherited_role.rb
  class RailsLoadHooksTest < RailsTest
    LIVE = <<~RUBY
      include ActionController::Live
      def boom = raise(NotImplementedError, "abstract")
    RUBY

    FILES = {
      "app/controllers/lives_controller.rb" => "class LivesController < ActionController::Base\n#{LIVE}end\n",
      "app/controllers/api_controller.rb" => "class ApiController < ActionController::API\n#{LIVE}end\n",
      "app/controllers/probes_controller.rb" => <<~'RUBY',
        class ProbesController < ActionController::Base
          def item = render(json: Item.find(1))

          def twice
            _sandbox = Class.new(BasicObject) { include ::Kernel }
            Fairlead::ForkGuard.establish # as another server in this process does
            types = ObjectSpace.each_object(Module).to_a
            found = (types | types.map(&:singleton_class)).filter_map do |type|
              names = type.ancestors.tally.filter_map { |ancestor, times| ancestor.name if times > 1 }
              ours = names.grep(/\AFairlead::/) - ["Fairlead::ForkGuard::Block"] # of Process.fork, and again of every object's fork
              "#{type.inspect}: #{ours.join(", ")}" if ours.any?
            end
            render json: found
          end
        end
      RUBY
      # Made after ActiveRecord's hook has run, and before the worker prepares the process again.
      "app/models/archive.rb" => "class Archive\n  Item.name\n  extend ActiveRecord::ConnectionHandling\nend\n",
      "config/initializers/silent.rb" => "Rails.application.deprecators.silenced = true\n",
      "config/routes.rb" => <<~RUBY
        Rails.application.routes.draw do
          get :base, to: "lives#boom"
          get :api, to: "api#boom"
          get :item, to: "probes#item"
          get :twice, to: "probes#twice"
        end
      RUBY
    }.freeze
    private_constant :LIVE, :FILES

    def test_what_a_live_action_raises_is_answered_500_whichever_base_is_loaded_first
      %w[/base /api].permutation do |order|
        server = rails(:fairlead, "--workers", "1", environment: "test", files: FILES)

        assert_equal %w[500] * 3, [*order, order.first].map { |path| server.get(path).code }, order.join(" before ")
      end
    end

    def test_no_module_of_ours_stands_twice_among_the_ancestors_of_a_class
      { "test" => "lazy", "production" => "eager" }.each do |environment, loading|
        server = rails(:fairlead, "--workers", "1", environment:, files: FILES)
        %w[/item /base /api].each { |path| server.get(path) }

        assert_empty server.json("/twice"), loading
      end
    end
  end
end
