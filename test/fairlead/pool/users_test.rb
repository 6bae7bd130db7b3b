# frozen_string_literal: true

require_relative "helper"
require "socket"
require "tmpdir"

module Fairlead
  # Gems that use connection_pool use this pool once one constant is changed, as the guide says. Each needs its
  # server here, and is skipped aloud without.
  class PoolUsersTest < PoolTest
    def teardown
      @changed&.each { |owner| owner.send(:remove_const, :ConnectionPool) }
      if @server
        Process.kill(:KILL, @server)
        Process.wait(@server)
      end
      super
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
      require "redis_client"
      change RedisClient::Pooled
      redis = RedisClient.config(url: redis_url).new_pool(size: 2, timeout: 0.05)

      assert_equal "OK", redis.call("SET", "key", "value")
      assert_equal ["value"], redis.pipelined { |pipeline| pipeline.call("GET", "key") }
      assert_kind_of Pool, redis.instance_variable_get(:@pool)
      with_all_taken(redis.instance_variable_get(:@pool)) do
        assert_raises(RedisClient::CheckoutTimeoutError) { redis.call("PING") }
      end
      redis.close
    end

    def test_rails_cache_in_redis
      needs "redis", "activesupport"
      require "active_support"
      require "active_support/cache"
      require "active_support/cache/redis_cache_store"
      pool = Pool.new(size: 2, timeout: 0.05) { Redis.new(url: redis_url) }
      cache = ActiveSupport::Cache::RedisCacheStore.new(redis: pool, pool: false)

      assert cache.write("key", "value")
      assert_equal "value", cache.read("key")
      assert_operator pool.stat[:holds][:count], :>=, 2
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

    def test_rails_cache_in_memcached_with_its_pool_option
      needs "dalli", "activesupport"
      require "active_support"
      require "active_support/cache"
      require "active_support/cache/mem_cache_store"
      change ActiveSupport::Cache::MemCacheStore
      root = Process.uid.zero? ? ["-u", "nobody"] : []
      port = start("memcached", "-l", "127.0.0.1", "-p", "%d", *root)
      cache = ActiveSupport::Cache::MemCacheStore.new("127.0.0.1:#{port}", pool: { size: 2, timeout: 1 })

      assert cache.write("key", "value")
      assert_equal "value", cache.read("key")
      pool = cache.instance_variable_get(:@data)
      assert_kind_of Pool, pool
      assert_equal 2, pool.size
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
      ENV.fetch("TEST_REDIS_URL") { skip "No Redis: run bin/test, or set TEST_REDIS_URL (bin/services url redis)" }
    end

    # As in the guide: the gem's own code finds this constant before the global one.
    def change(owner)
      owner.const_set(:ConnectionPool, Fairlead::Pool)
      (@changed ||= []) << owner
    end

    # @return [Integer] the port at which it answers.
    def start(command, *arguments)
      skip "#{command} is not installed" unless system("command -v #{command} >/dev/null")

      port = Addrinfo.tcp("127.0.0.1", 0).listen { |socket| socket.local_address.ip_port }
      @server = Process.spawn(command, *arguments.map { |argument| argument.sub("%d", port.to_s) },
        out: File::NULL, err: File::NULL, chdir: Dir.tmpdir)
      eventually("#{command} answers") do
        TCPSocket.new("127.0.0.1", port).close || true
      rescue SystemCallError
        false
      end
      port
    end
  end
end
