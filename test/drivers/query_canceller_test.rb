# frozen_string_literal: true

require_relative "../helper"
require_relative "../own_services"
require_relative "databases"
require "async"
require "etc"
require "mysql2"
require "open3"
require "stringio"
require "trilogy"
require "fairlead/drivers/mysql2"
require "fairlead/drivers/trilogy"

module Fairlead
  # MySQL and MariaDB end a query when another connection asks for it: which one that is, and what is done where the
  # server takes no more.
  # Covers drivers/query_canceller.rb
  class QueryCancellerTest < Test
    include Databases
    needs :database

    DRIVERS = {
      "mysql2" => ->(settings) { Mysql2::Client.new(settings) },
      "trilogy" => ->(settings) { Trilogy.new(settings) }
    }.freeze

    # A second server.
    FOLDER = OwnServices.folder("side")

    def self.services(*arguments)
      said, status = Open3.capture2({ "FAIRLEAD_SERVICES" => FOLDER }, OwnServices::PROGRAM, *arguments)
      status.success? ? said : raise(said)
    end

    def setup
      super
      @log = Log.io = StringIO.new
      @administrator = Trilogy.new(**Databases.mariadb_settings)
      # Each test has another user, and so another connection beside.
      @user = "side_#{Process.pid}_#{rand(1 << 32)}"
      @administrator.query("CREATE USER #{@user} IDENTIFIED BY 'few'")
    end

    def teardown
      @administrator&.query("DROP USER #{@user}")
      Log.io = $stderr
      super
    end

    DRIVERS.each do |name, connect|
      define_method("test_#{name}_has_one_connection_kept_for_all") do
        allow(2)
        Sync do
          3.times { |n| cancel(connect) { assert_equal [1, 2, 2][n], connections } }
        end

        assert_equal 1, connections
        assert_empty @log.string
      end

      define_method("test_#{name}_gets_another_one_if_the_server_has_closed_it") do
        Sync do
          cancel(connect)
          @administrator.query("KILL USER #{@user}")
          eventually("it is gone") { connections.zero? }
          cancel(connect)
        end

        assert_empty @log.string
      end

      define_method("test_#{name}_says_where_the_server_takes_no_more") do
        allow(1)
        Sync do
          task = Async { connect.call(settings).query("SELECT SLEEP(20)") }
          eventually("it runs") { queries == 1 }
          task.cancel
          task.wait

          assert_match(/could not be ended at 127\.0\.0\.1:\d+ \(its connection \d+\): .*max_user_connections/, @log.string)
          assert_match(/the query may go on there\. .*let it allow more connections \(its max_connections\)/, @log.string)
          assert_equal 1, @log.string.lines.size
        end
        @administrator.query("KILL USER #{@user}")
      end
    end

    DRIVERS.each do |name, connect|
      define_method("test_#{name}_ends_nobody_elses_query_where_the_address_leads_to_another_server_meanwhile") do
        balancer = Balancer.new(Databases.mariadb_settings[:port], other_settings[:port])
        count_up(settings, count_up(other_settings, 0).fairlead_session.id + 10).close
        Sync do
          client = connect.call(settings.merge(port: balancer.port))
          id = client.query("SELECT CONNECTION_ID() AS id").first.then { |row| row.is_a?(Hash) ? row["id"] : row.first }
          balancer.next_server
          innocent = count_up(other_settings, id)
          assert_equal id, innocent.fairlead_session.id
          other = Thread.new { innocent.query("SELECT SLEEP(1)").first.first }
          task = Async { client.query("SELECT SLEEP(20)") }
          eventually("it runs") { queries == 1 }
          task.cancel
          task.wait

          assert_equal 0, other.value, "1: it was ended"
          assert_match(/the address leads to another server/, @log.string)
          assert_predicate client, :closed?
        end
        @administrator.query("KILL USER #{@user}")
      ensure
        balancer&.close
      end
    end

    # Leads all connections to one server, and then to another.
    class Balancer
      attr_reader :port

      def initialize(*servers)
        @servers = servers
        @listener = TCPServer.new("127.0.0.1", 0)
        @port = @listener.local_address.ip_port
        @thread = Thread.new { loop { serve(@listener.accept, TCPSocket.new("127.0.0.1", @servers.first)) } }
        @thread.report_on_exception = false
      end

      def next_server = @servers.shift

      def close
        @thread.kill
        @listener.close
      end

      private

      def serve(client, server)
        [[client, server], [server, client]].each do |from, to|
          Thread.new do
            IO.copy_stream(from, to)
          rescue SystemCallError, IOError
            nil
          ensure
            to.close
          end
        end
      end
    end
    private_constant :Balancer

    private

    # @return [Hash] of the test's user at the other server.
    def other_settings
      @other_settings ||= begin
        self.class.services("start", "mariadb")
        address = URI(self.class.services("url", "mariadb").strip)
        root = Trilogy.new(host: address.host, port: address.port, username: address.user, password: address.password)
        root.query("CREATE USER #{@user} IDENTIFIED BY 'few'")
        root.close
        { host: address.host, port: address.port, username: @user, password: "few" }
      end
    end

    # Servers count their connections: opens some until the count is so high.
    #
    # @return [Trilogy]
    def count_up(settings, id)
      loop do
        client = Trilogy.new(**settings)
        return client if client.fairlead_session.id >= id

        client.close
      end
    end

    def settings = { **Databases.mariadb_settings, username: @user, password: "few", database: nil }.compact

    # Interrupts a query, and waits until the server has ended it.
    def cancel(connect)
      task = Async do
        client = connect.call(settings)
        client.query("SELECT SLEEP(20)")
      ensure
        client&.close
      end
      eventually("it runs") { queries == 1 }
      yield if block_given?
      task.cancel
      eventually("it is ended") { queries.zero? }
      task.wait
      eventually("its connection is closed") { connections <= 1 }
    end

    def allow(connections) = @administrator.query("ALTER USER #{@user} WITH MAX_USER_CONNECTIONS #{connections}")

    def connections = count("user = '#{@user}'")

    def queries = count("user = '#{@user}' AND info LIKE 'SELECT SLEEP%'")

    def count(condition)
      @administrator.query("SELECT count(*) FROM information_schema.processlist WHERE #{condition}").rows.first.first
    end
  end
end
