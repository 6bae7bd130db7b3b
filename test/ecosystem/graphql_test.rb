# frozen_string_literal: true

require "json"
require_relative "ecosystem"

module Fairlead
  # GraphQL::Dataloader, as its guide sets it up: it runs what a query asks for in fibers of its own.
  # Covers integrations/graphql.rb
  class GraphqlTest < EcosystemTest
    needs :database

    APP = <<~'RUBY'
      require "json"
      require "active_record"
      require "active_support/current_attributes"
      require "async"
      require "graphql"

      class Current < ActiveSupport::CurrentAttributes
        attribute :user
      end

      class ApplicationRecord < ActiveRecord::Base
        self.abstract_class = true
      end
      ActiveRecord::Base.configurations = { ENV.fetch("RACK_ENV", "development") => { "primary" => { "url" => ENV.fetch("DATABASE_URL"), "max_connections" => 3, "checkout_timeout" => 3 } } }
      ApplicationRecord.connects_to(database: { writing: :primary, reading: :primary })
      class Thing < ApplicationRecord
        self.table_name = "graphql_things"
      end
      if Thing.with_connection { |connection| connection.select_value("SELECT pg_try_advisory_lock(815)") }
        Thing.with_connection do |connection|
          connection.execute("DROP TABLE IF EXISTS graphql_things")
          connection.execute("CREATE TABLE graphql_things (id serial PRIMARY KEY, name text)")
          connection.execute("INSERT INTO graphql_things (name) SELECT 'thing ' || n FROM generate_series(1, 50) n")
        end
      end
      ApplicationRecord.connection_handler.clear_all_connections!(:all)

      # What the guide has for connections; fibers that are done give back what they have leased.
      module Hooks
        def get_fiber_variables
          { **super, connected_to: { role: ApplicationRecord.current_role, shard: ApplicationRecord.current_shard, prevent_writes: ApplicationRecord.current_preventing_writes } }
        end

        def set_fiber_variables(variables)
          ApplicationRecord.connecting_to(**variables.delete(:connected_to))
          super
        end

        def cleanup_fiber
          super
          ApplicationRecord.connection_pool.release_connection
        end
      end
      class HookedLoader < GraphQL::Dataloader
        include Hooks
      end
      class AsyncLoader < GraphQL::Dataloader::AsyncDataloader
        include Hooks
      end

      class Things < GraphQL::Dataloader::Source
        def fetch(ids)
          found = Thing.where(id: ids).index_by(&:id)
          pid = Thing.lease_connection.select_value("SELECT pg_backend_pid() FROM pg_sleep(0.01)")
          ids.map { |id| { id:, name: found.fetch(id).name, user: Current.user, role: ApplicationRecord.current_role.to_s, pid:, context: [] } }
        end
      end

      class ThingType < GraphQL::Schema::Object
        field :id, Integer
        field :name, String
        field :user, String
        field :role, String
        field :pid, Integer
        field :own, String
        field :next, ThingType
        def next = dataloader.with(Things).load(object[:id] + 1)
        def own = (Thing.find(object[:id]); Current.user.to_s)
      end

      class QueryType < GraphQL::Schema::Object
        field :thing, ThingType do
          argument :id, Integer
        end
        field :written, String do
          argument :name, String
        end
        def thing(id:) = dataloader.with(Things).load(id)
        def written(name:) = Thing.create!(name:).name
      end

      SCHEMAS = { "plain" => GraphQL::Dataloader, "hooked" => HookedLoader, "async" => AsyncLoader }.to_h do |name, loader|
        [name, Class.new(GraphQL::Schema) { query(QueryType); use(loader) }]
      end
      QUERY = "query($a: Int!, $b: Int!) { a: thing(id: $a) { name user role pid own next { name user pid } } b: thing(id: $b) { name user role own pid } }"

      run(lambda do |env|
        _, loader, action, number = env["PATH_INFO"].split("/")
        schema = SCHEMAS[loader]
        number = number.to_i
        Current.user = "user #{number}"
        answer =
          case action
          when "query"
            # Whoever waits for the database in the request itself keeps its connection meanwhile.
            Thing.lease_connection.select_value("SELECT pg_sleep(0.01)")
            Thing.connection_pool.release_connection
            stack = ApplicationRecord.connected_to_stack.size
            result = ApplicationRecord.connected_to(role: :reading) { schema.execute(QUERY, variables: { a: number, b: number + 2 }).to_h }
            { **result, after: ApplicationRecord.current_role, stack: ApplicationRecord.connected_to_stack.size - stack }
          when "rollback"
            name = "never #{loader} #{number}"
            result = nil
            Thing.transaction do
              pid = Thing.lease_connection.select_value("SELECT pg_backend_pid()")
              result = schema.execute("query($name: String!) { written(name: $name) thing(id: 1) { pid } }", variables: { name: }).to_h
              result[:same] = result.dig("data", "thing", "pid") == pid && Thing.lease_connection.select_value("SELECT pg_backend_pid()") == pid
              raise ActiveRecord::Rollback
            end
            { **result, left: Thing.where(name:).count }
          when "stat" then Thing.connection_pool.stat
          end
        [200, { "content-type" => "application/json" }, [JSON.generate(answer)]]
      end)
    RUBY

    def test_what_a_query_loads_is_loaded_for_its_request
      %w[plain hooked].each do |loader|
        at_once(20) { |number| "/#{loader}/query/#{number}" }.each.with_index(1) do |answer, number|
          user = "user #{number}"
          a, b = answer.fetch("data").values_at("a", "b")

          assert_equal ["thing #{number}", user, "reading", user], a.values_at("name", "user", "role", "own")
          assert_equal ["thing #{number + 1}", user], a["next"].values_at("name", "user")
          assert_equal ["thing #{number + 2}", user, "reading", user], b.values_at("name", "user", "role", "own")
          assert_equal ["writing", 0], answer.values_at("after", "stack")
        end
      end
      assert_nothing_leased
    end

    def test_what_a_query_writes_is_rolled_back_with_the_transaction_around_it
      %w[plain hooked].each do |loader|
        at_once(10) { |number| "/#{loader}/rollback/#{number}" }.each.with_index(1) do |answer, number|
          assert_equal "never #{loader} #{number}", answer.dig("data", "written")
          assert_equal [true, 0], answer.values_at("same", "left")
        end
      end
      assert_nothing_leased
    end

    # Its fibers are tasks: each has a state and a connection of its own, as its guide says.
    def test_the_loader_that_uses_async
      at_once(20) { |number| "/async/query/#{number}" }.each.with_index(1) do |answer, number|
        assert_equal ["thing #{number}", "reading"], answer.fetch("data")["a"].values_at("name", "role")
        assert_equal ["writing", 0], answer.values_at("after", "stack")
      end
      assert_nothing_leased
    end

    private

    def server = shared_server(APP, env: BUNDLE.merge("DATABASE_URL" => ENV.fetch("TEST_DATABASE_URL")))

    # A lease may be given back just after the answer.
    def assert_nothing_leased = eventually("nothing is leased") { JSON.parse(server.get("/plain/stat").body)["busy"].zero? }

    def at_once(count)
      server
      (1..count).map { |number| Thread.new { server.get(yield(number)) } }.map do |thread|
        assert_equal "200", thread.value.code, server.log
        JSON.parse(thread.value.body)
      end
    end
  end
end
