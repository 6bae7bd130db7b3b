# frozen_string_literal: true

require_relative "../helper"
require_relative "../http_client"

module Fairlead
  # Libraries whose insides are not what Fairlead relies on.
  class CompatibilityTest < Test
    include SpeaksHTTP
    needs :database

    SERVE = 'run ->(_) { [200, {}, ["served"]] }'
    DATABASE = <<~'RUBY'
      require "active_record"
      require "fairlead"
      ActiveRecord::Base.establish_connection(ENV.fetch("TEST_DATABASE_URL"))
    RUBY
    POOLS = <<~'RUBY'
      run(lambda do |env|
        ActiveRecord::Base.with_connection { |connection| connection.select_value("SELECT 1") }
        pool = ActiveRecord::Base.connection_pool
        [200, {}, [[pool.class.ancestors.take_while { |one| one != pool.class }, pool.stat[:busy]].inspect]]
      end)
    RUBY

    # Rows of gems that only the ecosystem's bundles have.
    ELSEWHERE = %i[
      rack_timeout sequel graphql excon stripe debug fast_mcp tus_server mini_racer opentelemetry_context opentelemetry_spans
    ].freeze

    # The whole table, with the versions of the bundle.
    def test_the_present_versions_fit
      said = IO.popen([RbConfig.ruby, "-I", "lib", "-e", <<~RUBY], chdir: ROOT, err: %i[child out], &:read)
        require "bundler/setup"
        require "fairlead/parts"
        require "fairlead/serving/selector"
        %w[async action_controller active_record active_support/concurrency/share_lock pg mysql2 trilogy sqlite3 net/http
           nokogiri rackup].each { |file| require file }
        %w[postgresql mysql2 trilogy].each { |name| require "active_record/connection_adapters/\#{name}_adapter" }
        table = Fairlead::Compatibility::TABLE.except(*#{ELSEWHERE})
        puts table.filter_map { |name, row| "\#{name}: \#{row.misfit}" if row.misfit }
        puts "\#{table.size} rows"
      RUBY

      assert_equal "#{Compatibility::TABLE.size - ELSEWHERE.size} rows\n", said
    end

    def test_without_what_keeps_requests_apart_it_refuses_to_serve
      error = refusal('require "async"; Async::Scheduler.send(:undef_method, :fiber_interrupt)')

      assert_match(/async 2\.\d+\.\d+ has no Async::Scheduler#fiber_interrupt, on which Fairlead/, error)
      assert_match(/Use a tested version of async \(~> 2\.46\), or update Fairlead\./, error)
    end

    def test_a_variable_that_has_gone_is_noticed
      require "async"
      row = Compatibility::TABLE[:async].dup
      row.variables = { "Async::Scheduler" => %i[@timers @gone] }

      assert_match(/has no @gone in Async::Scheduler\z/, row.misfit)
    end

    def test_a_driver_whose_insides_have_changed_is_refused
      error = refusal('require "pg"; PG::Connection.send(:undef_method, :discard_results); require "fairlead"')

      assert_match(/pg \S+ has no PG::Connection#discard_results/, error)
      assert_match(/could leave its transaction to the next request/, error)
    end

    def test_what_has_its_methods_and_works_otherwise_is_refused
      error = refusal(<<~RUBY)
        require "active_support"
        require "active_support/concurrency/share_lock"
        ActiveSupport::Concurrency::ShareLock.prepend(Module.new { def start_exclusive(**) = true })
      RUBY

      assert_match(/activesupport \S+ does not work like the versions that were tested.* Code may be reloaded while/, error)
    end

    def test_what_can_be_left_out_is_left_out_and_said_once
      server = with_server(%(require "trilogy"; Trilogy.send(:undef_method, :connection_options); #{SERVE}))
      assert_equal "served", client(to: server).get("/").body
      assert_equal 1, server.log.scan(/trilogy \S+ has no Trilogy#connection_options, .* Abandoned queries continue/).size
    end

    def test_an_untested_active_record_keeps_its_own_pools
      untested = 'def ActiveRecord.gem_version = Gem::Version.new("8.2.0.alpha")'
      server = with_server("#{DATABASE}#{untested}\n#{POOLS}", lint: false)

      assert_match(/\A\[\[.*Leases.*\], 0\]\z/, client(to: server).get("/").body)
      refute_match(/PoolPatch/, client(to: server).get("/").body)
      assert_match(/^  database   ActiveRecord 8\.2\.0\.alpha is newer than what was tested \(>= 8\.1, < 8\.2\), and keeps its/, server.log)
      said = IO.popen([RbConfig.ruby, "-rbundler/setup", "#{ROOT}/exe/fairlead", "doctor"], chdir: server.directory, &:read)

      assert_match(/^– ActiveRecord 8\.2\.0\.alpha is newer .*\n    → Update Fairlead once/, said)
      refute_includes said, "Update Rails"
      assert_match(/activerecord 8\.2\.0\.alpha is newer than what was tested, .* keeps its own pools/, server.log)
    end

    def test_it_then_has_no_budget
      error = refusal("#{DATABASE}def ActiveRecord.gem_version = Gem::Version.new(\"8.2.0\")", "--database-connections", "5")

      assert_match(/`database_connections 5` needs ActiveRecord >= 8\.1, < 8\.2, and the app has 8\.2\.0, which is newer than/, error)
    end

    def test_a_tested_active_record_gets_ours
      server = with_server("#{DATABASE}#{POOLS}", lint: false)
      assert_match(/Fairlead::ActiveRecord::PoolPatch/, client(to: server).get("/").body, server.log)
    end

    private

    # @return [String] the log of a server that does not come to serve.
    def refusal(code, *flags)
      server = with_server("#{code}\n#{SERVE}", *flags, ready: false)
      refute_predicate server.wait_for_end, :success?
      server.log
    end
  end
end
