# frozen_string_literal: true

require_relative "../../../helper"
require_relative "../../../stalls"

module Fairlead
  # Each worker says by itself that it is there.
  class HealthPathTest < Test
    include SpeaksHTTP
    include Stalls

    def server = shared_server(APP, "--health-path", "/fine", "--access-log", "common")

    def test_it_is_answered_without_the_app
      one = client
      answer = one.get("/fine")
      assert_equal [200, "ok\n", "text/plain"], [answer.status, answer.body, answer["content-type"]]
      answer = one.get("/fine?a=b", head: true)
      assert_equal [200, "3"], [answer.status, answer["content-length"]]
      assert_operator one.get("/").body.to_i, :>, 0
      assert_operator one.request("POST", "/fine", body: "x").response.body.to_i, :>, 0
      eventually("the app's requests are in the access log") { server.log.include?('"POST /fine') }
      refute_includes server.log, '"GET /fine'
    end

    # Nobody turns the loop but the watch thread.
    def test_it_is_answered_while_a_request_holds_the_only_worker_up
      one = client
      one.get("/fine")
      stuck = keep_stuck(server)
      [one, client].each { |each| assert_equal 200, each.get("/fine").status }
      release(server)
      assert_equal 200, stuck.response.status
    end

    def test_without_the_option_the_app_is_asked
      with_server(APP) { |server| refute_equal "ok\n", server.get("/fine").body }
    end

    def test_what_is_no_path_is_refused
      %w[fine /a?b /a#b].each do |path|
        error = assert_raises(ConfigurationError) { Configuration.new(health_path: path) }
        assert_equal "health_path: `health_path` must be a path of at most 255 bytes that begins with a slash, " \
                     "like /up, not #{path.inspect}.", error.message
      end
    end
  end
end
