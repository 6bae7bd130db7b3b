# frozen_string_literal: true

require_relative "helper"
require "fileutils"
require "json"
require "open3"
require "rbconfig"
require "socket"
require "tmpdir"

module Fairlead
  # Gems that use connection_pool use this pool, each with what the guide says, as it is written there, in a process of its
  # own. Each needs its server here, and is skipped aloud without.
  class PoolUsersTest < PoolTest
    needs :database

    # What the guide says to write: name => code.
    GUIDE = File.read(File.expand_path("../../../guides/fair-pool.md", __dir__)).scan(/^```ruby-with-([\w-]+)\n(.*?)^```/m).to_h

    # As in an app, where Bundler loads the pool.
    RUBY = [RbConfig.ruby, "-I", File.expand_path("../../../lib", __dir__), "-r", "fairlead/pool"].freeze

    JOBS = <<~RUBY
      class Job
        include Sidekiq::Job
        sidekiq_options queue: ENV.fetch("QUEUE"), retry: false

        def perform(list) = Sidekiq.redis { |redis| redis.lpush(list, Sidekiq.redis_pool.class.name) }
      end
    RUBY

    RAILS = <<~RUBY
      require "rails"
      class App < Rails::Application
        config.root = Dir.pwd
        config.eager_load = false
        config.logger = Logger.new(nil)
      end
      App.initialize!
    RUBY

    def setup
      super
      @folder = Dir.mktmpdir
    end

    def teardown
      if @server
        Process.kill(:KILL, @server)
        Process.wait(@server)
      end
      FileUtils.rm_rf(@folder)
      super
    end

    def test_these_are_all_that_the_guide_tells_of
      assert_equal %w[redis-client sidekiq rails-and-memcached rails-and-redis], GUIDE.keys
    end

    def test_it_has_all_that_connection_pool_has_with_its_options
      needs "connection_pool"
      require "connection_pool"
      { ConnectionPool => Pool, ConnectionPool::Wrapper => Pool::Wrapper }.each do |theirs, ours|
        assert_empty theirs.singleton_methods(false) - ours.singleton_methods(false)
        assert_empty theirs.public_instance_methods(false) - ours.public_instance_methods(false)
        [:initialize, *theirs.public_instance_methods(false)].each do |name|
          assert_empty options(theirs, name) - options(ours, name), "#{ours}##{name}"
        end
      end
      assert_operator Pool::Error, :<, ConnectionPool::Error
      assert_operator Pool::TimeoutError, :<, ConnectionPool::TimeoutError
    end

    def test_redis_client
      needs "redis-client"
      answers, pool, refused = evaluate(<<~RUBY, "REDIS_URL" => redis_url)
        #{GUIDE["redis-client"]}
        answers = [redis.call("SET", "key", "value"), *redis.pipelined { |pipeline| pipeline.call("GET", "key") }]
        pool = redis.instance_variable_get(:@pool)
        pool.size.times { Thread.new { pool.checkout; sleep } }
        Thread.pass until pool.available.zero?
        refused = begin
          redis.call("PING")
        rescue RedisClient::CheckoutTimeoutError => error
          error.message
        end
        [answers, [pool.class, pool.size], refused]
      RUBY

      assert_equal %w[OK value], answers
      assert_equal ["Fairlead::Pool", 5], pool
      assert_match(/waited 1 s for a connection .* 5 of 5 are in use/, refused)
    end

    def test_sidekiq_on_both_sides
      needs "sidekiq"
      File.write(File.join(@folder, "jobs.rb"), GUIDE["sidekiq"] + JOBS)
      environment = { "REDIS_URL" => redis_url, "QUEUE" => "queue-#{Process.pid}" }
      start(environment, *RUBY, Gem.bin_path("sidekiq", "sidekiq"), "-r", "./jobs.rb", "-q", environment["QUEUE"])
      pools, holds = evaluate(<<~RUBY, **environment)
        require "./jobs"
        pool = Sidekiq.redis_pool # made by whoever asks first, and by several who do so at once
        list = "pools-\#{Process.pid}"
        Array.new(100) { Thread.new { Job.perform_async(list) } }.each(&:join)
        pools = Array.new(100) { Sidekiq.redis { |redis| redis.blocking_call(60, "BRPOP", list, 60) }&.last }
        [[pool.class.name, *pools].uniq, pool.stat[:holds][:count]]
      RUBY

      assert_equal ["Fairlead::Pool"], pools, File.read(File.join(@folder, "output"))[..2_000]
      assert_operator holds, :>=, 200
    end

    def test_rails_cache_in_redis
      needs "redis", "railties"
      read, pool, holds = evaluate_in_rails("rails-and-redis", <<~RUBY, "REDIS_URL" => redis_url)
        Rails.cache.write("key", "value") or raise "not written"
        pool = Rails.cache.redis
        [Rails.cache.read("key"), [pool.class, pool.size], pool.stat[:holds][:count]]
      RUBY

      assert_equal "value", read
      assert_equal ["Fairlead::Pool", 5], pool
      assert_operator holds, :>=, 2
    end

    def test_rails_cache_in_memcached_with_its_pool_option
      needs "dalli", "railties"
      port = start_memcached
      read, pool = evaluate_in_rails("rails-and-memcached", <<~RUBY, "MEMCACHE_SERVERS" => "127.0.0.1:#{port}")
        Rails.cache.write("key", "value") or raise "not written"
        pool = Rails.cache.instance_variable_get(:@data)
        [Rails.cache.read("key"), [pool.class, pool.size]]
      RUBY

      assert_equal "value", read
      assert_equal ["Fairlead::Pool", 5], pool
    end

    # As with connection_pool: the store's error handler is told, and the app goes on without the cache.
    def test_rails_cache_in_redis_misses_where_it_has_no_connection_in_time_and_where_the_line_is_full
      needs "redis", "activesupport"
      require "active_support"
      require "active_support/cache"
      require "active_support/cache/redis_cache_store"
      { { timeout: 0.05 } => Pool::TimeoutError, { max_waiting: 0 } => Pool::FullError }.each do |options, error|
        told = []
        pool = Pool.new(size: 1, **options) { Redis.new(url: redis_url) }
        handler = ->(method:, exception:, **) { told << [method, exception.class] }
        cache = ActiveSupport::Cache::RedisCacheStore.new(redis: pool, pool: false, error_handler: handler)
        cache.write("key", "value")
        with_all_taken(pool) do
          assert_nil cache.read("key")
          assert_equal "made again", cache.fetch("key") { "made again" }
        end

        assert_equal "value", cache.read("key")
        assert_equal [[:read_entry, error], [:read_entry, error], [:write_entry, error]], told
      end
    end

    private

    def options(owner, method) = owner.instance_method(method).parameters.filter_map { |kind, name| name if kind == :key }

    # They are in the bundle; JRuby runs these tests without.
    def needs(*gems)
      gems.each do |name|
        gem name
      rescue Gem::LoadError
        skip "the gem #{name} is not installed"
      end
    end

    def redis_url
      ENV.fetch("TEST_REDIS_URL")
    end

    # In the test's folder.
    #
    # @return what the script's last expression says, as JSON tells it.
    def evaluate(script, **environment)
      script = "value = begin\n#{script}\nend\nrequire \"json\"\nputs JSON.generate(value)"
      output, errors, status = Open3.capture3(environment, *RUBY, "-e", script, chdir: @folder)
      assert_predicate status, :success?, errors
      JSON.parse(output.lines.last) # Sidekiq's client logs what it does before
    end

    # The same in a Rails app whose settings are the guide's.
    def evaluate_in_rails(name, script, **environment)
      file = File.join(@folder, "config/environments/production.rb")
      FileUtils.mkdir_p(File.dirname(file))
      File.write(file, GUIDE[name])
      evaluate(RAILS + script, "RAILS_ENV" => "production", **environment)
    end

    # In the test's folder, until the test ends.
    def start(environment, *command)
      @server = Process.spawn(environment, *command, %i[out err] => File.join(@folder, "output"), chdir: @folder)
    end

    # @return [Integer] the port at which it answers.
    def start_memcached
      skip "memcached is not installed (bin/setup --tests does it)" unless system("command -v memcached >/dev/null")

      port = Addrinfo.tcp("127.0.0.1", 0).listen { |socket| socket.local_address.ip_port }
      start({}, "memcached", "-l", "127.0.0.1", "-p", port.to_s, *(["-u", "nobody"] if Process.uid.zero?))
      eventually("memcached answers") do
        TCPSocket.new("127.0.0.1", port).close || true
      rescue SystemCallError
        false
      end
      port
    end
  end
end
