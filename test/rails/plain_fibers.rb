# frozen_string_literal: true

module Fairlead
  # Files of a Rails app, and tests, about fibers that a request makes itself: they belong to it.
  module PlainFibers
    APP = {
      "config/routes.rb" => <<~'RUBY',
        Rails.application.routes.draw do
          %w[seen other rollback batches abandoned release cleanup within waiting open_end streamed stat gc].each do |action|
            get action, to: "fibers##{action}"
          end
        end
      RUBY
      "config/initializers/shards.rb" => <<~'RUBY',
        ActiveSupport.on_load(:active_record) do
          ActiveRecord::Base.configurations = ActiveRecord::DatabaseConfigurations.new(
            "production" => {
              "primary" => { "adapter" => "postgresql", "url" => ENV.fetch("DATABASE_URL"), "pool" => 5, "checkout_timeout" => 5 },
              "south" => { "adapter" => "sqlite3", "database" => "south.sqlite3" },
              "north" => { "adapter" => "sqlite3", "database" => "north.sqlite3" }
            }
          )
        end
        Rails.application.config.after_initialize do
          ActiveRecord::Base.establish_connection(:primary)
          Place.connects_to_shards
        end
      RUBY
      "config/initializers/log.rb" => "Rails.logger.level = :warn\nRails.application.config.consider_all_requests_local = false\nActiveRecord.deprecator.silenced = true if ActiveRecord.respond_to?(:deprecator)\n",
      "app/models/item.rb" => <<~'RUBY',
        class Item < ActiveRecord::Base
          singleton_class.alias_method(:lease_connection, :connection) unless respond_to?(:lease_connection) # before 7.2
        end
      RUBY
      "app/models/shard_record.rb" => <<~'RUBY',
        class ShardRecord < ActiveRecord::Base
          self.abstract_class = true
        end
      RUBY
      "app/models/place.rb" => <<~'RUBY',
        class Place < ShardRecord
          def self.connects_to_shards
            ShardRecord.connects_to shards: { north: { writing: :north, reading: :north }, south: { writing: :south, reading: :south } }
            %i[north south].each do |shard|
              ShardRecord.connected_to(shard:, role: :writing) do
                connection.execute("CREATE TABLE IF NOT EXISTS places (id integer PRIMARY KEY, name text)")
                connection.execute("INSERT INTO places (name) VALUES ('#{shard}')")
              end
            end
          end
        end
      RUBY
      "app/views/fibers/streamed.html.erb" => "<p><%= Current.number %> <%= Time.zone.name %> <%= @pid == Item.connection.select_value('SELECT pg_backend_pid()') %></p>",
      "app/views/layouts/application.html.erb" => "<%= yield %>",
      "app/controllers/fibers_controller.rb" => <<~'RUBY'
        class FibersController < ActionController::Base
          # What each kind of fiber makes of a block.
          KINDS = {
            next: ->(block) { Enumerator.new { |all| all << block.call }.next },
            zip: ->(block) { [1].each.zip(Enumerator.new { |all| all << block.call }).dig(0, 1) },
            lazy: ->(block) { [1].lazy.map { block.call }.eager.each_entry.next },
            fiber: ->(block) { Fiber.new(&block).resume },
            blocking: ->(block) { Fiber.new(blocking: true, &block).resume },
            without_storage: ->(block) { Fiber.new(storage: {}, &block).resume },
            after_waiting: ->(block) { Fiber.new { sleep 0.005; block.call }.resume },
            resumed_again: ->(block) { Fiber.new { Fiber.yield; sleep 0.005; block.call }.tap(&:resume).resume },
            nested: ->(block) { Enumerator.new { |all| all << Fiber.new { sleep 0.002; Enumerator.new { |inner| inner << block.call }.next }.resume }.next },
            in_transfer: ->(block) { present = Fiber.current; Fiber.new { @result = block.call; present.transfer }.transfer; @result },
            # One request makes it, and others resume it.
            from_elsewhere: lambda do |block|
              idle = (IDLE[Thread.current] ||= [])
              fiber = idle.shift || Fiber.new { |given| loop { given = Fiber.yield(given.call) } }
              fiber.resume(block)
            ensure
              idle.push(fiber) if fiber.alive?
            end
          }
          IDLE = {}

          def seen
            number = params[:number].to_i
            Current.number = number
            Time.zone = %w[Tokyo Paris Lima].at(number % 3)
            kinds = KINDS.keys.rotate(number)
            answer = Item.connection_pool.with_connection do |connection|
              connection.execute("SET search_path TO tenant_#{number}, public")
              ShardRecord.connected_to(shard: %i[north south].at(number % 2), role: :reading) do
                sleep 0.005
                kinds.to_h { |kind| [kind, KINDS.fetch(kind).call(method(:state))] }.merge(direct: state)
              end
            ensure
              connection.execute("RESET search_path")
            end
            render json: answer
          end

          # The same in a child task: its fibers are its own.
          def other
            Current.number = 1
            render json: Async { Current.number = 2; sleep 0.001; [*KINDS.map { |_, kind| kind.call(-> { Current.number }) }, Current.number].uniq }.wait.push(Current.number)
          end

          def rollback
            left = KINDS.to_h do |kind, fiber|
              name = "never #{kind} #{params[:number]}"
              Item.transaction do
                fiber.call(-> { Item.create!(name:) })
                Item.transaction(requires_new: true) { fiber.call(-> { Item.create!(name:) }) }
                raise ActiveRecord::Rollback
              end
              [kind, Item.where(name:).count]
            end
            render json: left
          end

          def batches
            name = "new #{params[:number]}"
            seen = nil
            Item.transaction do
              Item.create!(name:)
              seen = Item.where(name:).find_each.next.name
              raise ActiveRecord::Rollback
            end
            render json: { seen:, left: Item.where(name:).count }
          end

          # Fibers that never come to their end.
          def abandoned
            $kept = [] unless params[:gc]
            6.times do
              enumerator = Enumerator.new { |all| 3.times { all << Item.lease_connection.select_value("SELECT 1") } }
              enumerator.next
              $kept << enumerator unless params[:gc]
            end
            within = Enumerator.new { |all| Item.connection_pool.with_connection { |connection| all << connection.select_value("SELECT 2") } }
            within.next
            render json: Item.connection_pool.stat
          end

          # A fiber that says it is done with its connection does not take that of the request, nor one with a transaction.
          def release
            name = "released #{params[:number]}"
            pid = nil
            Item.transaction do
              pid = backend
              Item.create!(name:)
              Fiber.new { Item.count; !!Item.connection_pool.release_connection }.resume
              sleep 0.002
              raise "another connection" unless backend == pid
              raise ActiveRecord::Rollback
            end
            lease = Item.lease_connection
            Fiber.new { Item.connection_handler.clear_active_connections! }.resume
            render json: { left: Item.where(name:).count, leased: Item.connection_pool.active_connection?.equal?(lease), busy: !lease.in_use?.nil? }
          end

          # What it has leased itself it may give back.
          def cleanup
            own = Fiber.new { Item.lease_connection; !!Item.connection_pool.release_connection }.resume
            render json: { own:, busy: Item.connection_pool.active_connection?.present? }
          end

          # It leaves its `with_connection` while the request is within a transaction on the same connection.
          def within
            name = "within #{params[:number]}"
            enumerator = Enumerator.new { |all| Item.connection_pool.with_connection { all << 1 }; all << 2 }
            enumerator.next
            Item.transaction do
              Item.create!(name:)
              enumerator.next
              sleep 0.002
              raise ActiveRecord::Rollback
            end
            render json: { left: Item.where(name:).count }
          end

          # Those that have the connections are fibers of the same thread as the one that blocks it.
          def waiting
            Item.connection_pool.with_connection { |connection| connection.execute("SELECT pg_sleep(0.02)") }
            render json: Fiber.new(blocking: true) { Item.where(id: 1).count }.resume
          end

          # A fiber stops within a transaction, and nobody resumes it: it is rolled back, as all that comes after it.
          def open_end
            name = "open end"
            Enumerator.new { |all| Item.transaction { Item.create!(name:); all << 1 } }.next
            head :ok
          end

          def streamed
            Current.number = params[:number].to_i
            Time.zone = "Tokyo"
            @pid = Item.connection.select_value("SELECT pg_backend_pid()")
            render stream: true
          end

          def stat = render(json: Item.connection_pool.stat.merge(open_end: Item.where(name: "open end").count))
          def gc = (GC.start; head(:ok))

          private

          def backend = Item.connection_pool.with_connection { |connection| connection.select_value("SELECT pg_backend_pid()") }

          def state
            Item.connection_pool.with_connection do |connection|
              [Current.number, Time.zone.name, ShardRecord.current_shard, ShardRecord.current_role, Place.first.name,
               *connection.select_rows("SELECT pg_backend_pid(), current_setting('search_path')").first,
               connection.query_cache_enabled, ActiveSupport::IsolatedExecutionState.context.object_id]
            end
          end
        end
      RUBY
    }.freeze

    NUMBERS = (1..40).to_a

    def test_a_fiber_that_a_request_makes_is_the_requests
      2.times do
        answers = fibers.json_at_once(*NUMBERS.map { |number| "/seen?number=#{number}" })
        answers.zip(NUMBERS) do |answer, number|
          direct = answer.delete("direct")
          shard = %w[north south].at(number % 2)

          assert_equal [number, %w[Tokyo Paris Lima].at(number % 3), shard, "reading", shard], direct.first(5)
          assert_equal ["tenant_#{number}, public", true], direct[6, 2]
          assert_operator answer.size, :>, 10
          assert_equal(answer.transform_values { direct }, answer)
        end
      end
    end

    def test_a_fiber_that_a_task_makes_is_the_tasks
      assert_equal [2, 1], fibers.json("/other")
    end

    def test_what_such_a_fiber_writes_is_rolled_back_with_the_transaction_around_it
      fibers.json_at_once(*NUMBERS.first(10).map { |number| "/rollback?number=#{number}" }).each do |left|
        assert_equal [0], left.values.uniq, left.to_s
      end
      assert_equal(NUMBERS.first(10).map { |number| { "seen" => "new #{number}", "left" => 0 } },
                   fibers.json_at_once(*NUMBERS.first(10).map { |number| "/batches?number=#{number}" }))
    end

    def test_fibers_that_are_abandoned_keep_no_connection
      %w[/abandoned /abandoned?gc=1].each do |path|
        12.times { assert_operator fibers.json(path)["busy"], :<=, 1 }
        fibers.get("/gc")

        assert_equal 0, fibers.json("/stat")["busy"]
      end
    end

    def test_a_transaction_that_such_a_fiber_leaves_open_is_rolled_back
      3.times { assert_equal "200", fibers.get("/open_end").code }
      stat = fibers.json("/stat")

      assert_equal [0, 0], stat.values_at("busy", "open_end")
    end

    def test_a_fiber_gives_back_only_what_it_has_leased_itself
      answers = fibers.json_at_once(*NUMBERS.first(10).map { |number| "/release?number=#{number}" })

      assert_equal [{ "left" => 0, "leased" => true, "busy" => true }], answers.uniq
      assert_equal({ "own" => true, "busy" => false }, fibers.json("/cleanup"))
      assert_equal([{ "left" => 0 }], fibers.json_at_once(*NUMBERS.first(10).map { |number| "/within?number=#{number}" }).uniq)
      assert_equal 0, fibers.json("/stat")["busy"]
    end

    def setup
      super
      postgresql
    end

    def test_a_streamed_template_is_rendered_with_the_requests_state
      answers = NUMBERS.first(10).map { |number| Thread.new { fibers.get("/streamed?number=#{number}").body } }.map(&:value)

      assert_equal(NUMBERS.first(10).map { |number| "<p>#{number} Tokyo true</p>" }, answers.map(&:strip))
    end
  end
end
