# frozen_string_literal: true

require_relative "ecosystem"

module Fairlead
  # How deep a request may go in gems that call themselves; see test/fairlead/hot_restart/fiber_stacks_test.rb.
  # Covers hot_restart/fiber_stacks.rb
  class DepthTest < EcosystemTest
    APP = <<~'RUBY'
      require "graphql"
      class QueryType < GraphQL::Schema::Object
        graphql_name "Query"
        field :me, QueryType
        field :number, Integer
        def me = {}
        def number = 1
      end
      SCHEMA = Class.new(GraphQL::Schema) { query QueryType }
      # Nine tenths of what a thread of Ruby 3.3 executes.
      NESTED = "{ #{"me { " * 380}number#{" }" * 380} }"
      run(lambda do |_|
        answer = SCHEMA.execute(NESTED).to_h
        [200, {}, [answer["errors"] ? answer["errors"].first["message"] : answer.inspect.count("{").to_s]]
      end)
    RUBY

    def test_a_nested_graphql_query_goes_as_deep_as_in_a_thread
      with_server(APP, env: ServerProcess::STACKS.transform_values { nil }) { |server| assert_equal "382", server.get.body }
    end
  end
end
