# frozen_string_literal: true

require_relative "helper"
require "open3"
require "pg"

module Fairlead
  # bin/services, with a set of servers beside the one that the other tests use.
  class ServicesTest < Test
    def setup
      # Not made yet: the first start does. Under root it must be where PostgreSQL's own user can go.
      @folder = "/var/tmp/fairlead-services-test-#{Process.pid}"
    end

    def teardown
      services "destroy"
      super
    end

    def test_start_makes_a_postgresql_that_url_leads_to
      assert_match(%r{PostgreSQL started: postgresql://}, succeed("start"))
      database = PG.connect(succeed("url").chomp)

      assert_operator database.exec("SHOW max_connections").getvalue(0, 0).to_i, :>=, 300
      assert_equal "off", database.exec("SHOW fsync").getvalue(0, 0)
      database.close
    end

    def test_nobody_gets_in_without_the_password
      succeed("start")
      address = URI(succeed("url").chomp)
      address.password = "guessed"

      assert_raises(PG::ConnectionBad) { PG.connect(address.to_s) }
    end

    def test_a_second_start_leaves_the_running_one_alone
      succeed("start")
      address = succeed("url")

      assert_match(/runs already/, succeed("start"))
      assert_equal address, succeed("url")
    end

    def test_data_outlives_a_stop_and_a_start
      succeed("start")
      PG.connect(succeed("url").chomp) { |database| database.exec("CREATE TABLE kept (id integer)") }
      succeed("stop")
      succeed("start")

      PG.connect(succeed("url").chomp) do |database|
        assert_equal "0", database.exec("SELECT count(*) FROM kept").getvalue(0, 0)
      end
    end

    def test_status_tells_by_its_exit_status_whether_all_run
      output, status = services("status")

      assert_equal 3, status.exitstatus
      assert_match(/does not run/, output)
      succeed("start")

      assert_match(/PostgreSQL runs/, succeed("status"))
      succeed("stop")

      assert_equal 3, services("status").last.exitstatus
    end

    def test_url_says_what_to_do_when_nothing_runs
      output, status = services("url")

      refute_predicate status, :success?
      assert_match(%r{PostgreSQL does not run: bin/services start}, output)
    end

    private

    def services(command)
      Open3.capture2e({ "FAIRLEAD_SERVICES" => @folder }, File.join(ROOT, "bin/services"), command)
    end

    def succeed(command)
      output, status = services(command)

      assert_predicate status, :success?, output
      output
    end
  end
end
