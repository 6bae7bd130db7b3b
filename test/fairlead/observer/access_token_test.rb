# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  class AccessTokenTest < Test
    def test_it_is_sent_as_a_bearer_token_or_as_a_password
      token = AccessToken.new("secret:1")

      ["Bearer secret:1", "bearer secret:1", "Basic #{["any:secret:1"].pack("m0")}"].each { |header| assert token.allows?(header), header }
      [nil, "", "Bearer", "Bearer ", "secret:1", "Bearer secret:2", "Bearer secret:1secret:1", "Bearer secret:", "Digest secret:1",
       "Basic secret:1", "Basic #{["secret:1"].pack("m0")}", "Basic #{["any:other"].pack("m0")}", "Bearer \xff"]
        .each { |header| refute token.allows?(header), header.inspect }
    end

    def test_without_one_anybody_may_read
      assert AccessToken.new(nil).allows?(nil)
      assert AccessToken.new("none").allows?(nil)
    end

    def test_metrics_that_others_could_reach_need_one
      ["http://127.0.0.1:9394", "http://127.1.2.3:1", "http://[::1]:9394", "http://localhost:9394", "unix:/run/metrics.sock"].each do |metrics|
        assert_nil AccessToken.check(Configuration.new(metrics:)), metrics
      end
      %w[http://0.0.0.0:9394 http://[::]:9394 http://192.0.2.1:9394 http://nowhere.invalid:1 /metrics].each do |metrics|
        error = assert_raises(ConfigurationError) { AccessToken.check(Configuration.new(metrics:)) }
        assert_includes error.message, "whoever reaches #{metrics} could read the metrics. Set `metrics_token`"
        %w[secret none].each { |metrics_token| assert_nil AccessToken.check(Configuration.new(metrics:, metrics_token:)) }
      end
      error = assert_raises(ConfigurationError) { AccessToken.check(Configuration.new(metrics: "/metrics", metrics_token: "")) }
      assert_includes error.message, "`metrics_token` is empty"
    end
  end
end
