# frozen_string_literal: true

require_relative "../helper"
require_relative "../http_client"
require_relative "databases"

module Fairlead
  # Connections that are open, and that nobody waits for, cost a reactor nothing.
  class RestTest < Test
    include Databases
    include SpeaksHTTP
    needs :database

    # Seconds that it has nothing to do, and the share of them for which it may compute. A reactor that is woken by what
    # nobody waits for computes all the time.
    CALM = 0.4
    SHARE = 0.3

    APP = <<~RUBY
      %w[async pg mysql2 trilogy active_record].each { |library| require library }

      run(lambda do |env|
        ActiveRecord::Base.establish_connection(ENV.fetch(env["PATH_INFO"].delete_prefix("/")))
        held = 0 # each keeps its connection until all have one
        Array.new(4) { Async { ActiveRecord::Base.with_connection { |one| one.select_value("SELECT 1") and held += 1; sleep 0.005 until held == 4 } } }.each(&:wait)
        raise "not all have connected" unless ActiveRecord::Base.connection_pool.connections.count(&:connected?) == 4

        before = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
        IO.pipe.first.wait_readable(#{CALM}) # so that it waits where the drivers do
        [200, {}, [(Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - before).to_s]]
      end)
    RUBY

    %w[POSTGRESQL MYSQL2 TRILOGY].each do |name|
      define_method("test_a_reactor_with_open_connections_of_#{name.downcase}_rests") do
        answer = server.get("/#{name}")
        assert_equal "200", answer.code, answer.body
        assert_operator answer.body.to_f, :<, CALM * SHARE
      end
    end

    private

    def server
      shared_server(APP, "-w", "1", env: { "POSTGRESQL" => Databases.postgresql, "MYSQL2" => Databases.mariadb,
                                          "TRILOGY" => Databases.url("trilogy") })
    end
  end
end
