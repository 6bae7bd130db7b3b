# frozen_string_literal: true

require_relative "../helper"
require_relative "databases"
require_relative "scram"
require_relative "slow_network"
require "pg"
require "uri"

module Fairlead
  # The key of a password is computed once, and never given to a server that names another salt.
  class LoginTest < Test
    include Databases

    # What libpq takes for a key is milliseconds; a connection without that is less than one.
    ROUNDS = 9_000
    ROLE = "login_test"
    PASSWORD = "a pass, word"

    def setup
      super
      skip_without_databases
      Drivers.establish
      skip("libpq is older than 18") unless PG::Connection.include?(Drivers::PostgreSQL::Keyed)
      keys.clear
      admit("salt")
    end

    def test_later_connections_take_no_time_for_the_key
      first, *later = Array.new(6) { computing { connect } }

      assert_operator later.max, :<, first / 4
    end

    def test_ten_connections_of_a_server_take_less_time_than_five_keys
      with_server(<<~RUBY, env: { "ROLE_URL" => url }) do |server|
        require "pg"
        Fairlead::Drivers.establish
        run lambda { |_env|
          before = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
          10.times { PG.connect(ENV.fetch("ROLE_URL")).finish }
          [200, { "content-type" => "text/plain" }, [(Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - before).to_s]]
        }
      RUBY
        times = Array.new(2) { server.get("/").body.to_f }

        assert_operator times.max, :<, 5 * key_time
      end
    end

    def test_a_server_that_names_another_salt_gets_no_wrong_proof
      2.times { connect }
      errors = wrong_proofs
      admit("another salt")

      assert_equal ROLE, connect
      assert_equal errors, wrong_proofs
      admit("a third one")
      assert_equal ROLE, connect
      assert_equal errors, wrong_proofs
    end

    def test_a_wrong_password_is_still_refused
      2.times { connect }
      error = assert_raises(PG::ConnectionBad) { connect(password: "wrong") }

      assert_match(/password authentication failed/, error.message)
      assert_equal ROLE, connect
    end

    def test_a_connection_that_is_made_again_takes_no_time_for_it_either
      connect do |connection|
        end_backend(connection.backend_pid)

        assert_operator computing { connection.reset }, :<, key_time / 4
        assert_equal ROLE, connection.exec("SELECT current_user").getvalue(0, 0)
      end
    end

    def test_nor_is_a_wrong_proof_sent_for_one_that_is_made_again
      connect do |connection|
        errors = wrong_proofs
        admit("another salt")
        connection.reset

        assert_equal ROLE, connection.exec("SELECT current_user").getvalue(0, 0)
        assert_equal errors, wrong_proofs
      end
    end

    # So do pg's own ways to begin again, and apps that copy a connection.
    def test_options_of_a_connection_that_had_a_key_are_checked_again
      connect
      copied = connect { |connection| connection.conninfo_hash.compact }
      errors = wrong_proofs
      admit("another salt")

      assert_includes copied.keys, :scram_client_key
      assert_equal ROLE, PG.connect(copied) { |connection| connection.exec("SELECT current_user").getvalue(0, 0) }
      assert_equal errors, wrong_proofs
    end

    def test_a_challenge_that_comes_in_pieces_is_not_trusted
      connect
      role, key = keys.find { |found, _| found.include?(ROLE) }
      login = Drivers::PostgreSQL::Login.of(%i[host port user password].zip(role).to_h)
      here, there = UNIXSocket.pair
      there.write("R\0\0\0\x30\0\0\0\x0br=")

      assert_includes login.options.keys, :scram_client_key
      assert login.refused?(here)
      assert_nil key.challenge
      refute_includes login.options.keys, :scram_client_key
    ensure
      [here, there].compact.each(&:close)
    end

    # There the salt cannot be read.
    def test_a_server_that_speaks_tls_now_gets_no_proof_of_before
      network = SlowNetwork.new(URI(Databases.postgresql).port, postgresql_tls: true)
      connect
      role, key = keys.find { |found, _| found.include?(ROLE) }
      keys[role.dup.tap { |changed| changed[1] = network.port.to_s }] = key
      errors = wrong_proofs
      admit("another salt")

      assert_equal ROLE, connect(port: network.port, sslmode: "require")
      assert_equal errors, wrong_proofs
      assert_nil key.challenge
    ensure
      network&.close
    end

    def test_passwords_that_change_all_the_time_do_not_fill_the_memory
      100.times { |index| keys[index] = keys.values.first }
      known = keys.size
      connect

      assert_equal known, keys.size
      assert_operator computing { connect }, :<, key_time / 2
    end

    private

    def keys = Drivers::PostgreSQL::Login.keys

    def url
      URI(Databases.postgresql).tap { |address| address.user, address.password = ROLE, URI.encode_uri_component(PASSWORD) }.to_s
    end

    def connect(password: PASSWORD, port: nil, **options)
      address = URI(Databases.postgresql)
      place = { host: address.host, port: port || address.port, dbname: address.path.delete_prefix("/") }
      PG.connect(**place, user: ROLE, password:, **options) do |connection|
        next yield(connection) if block_given?

        connection.exec("SELECT current_user").getvalue(0, 0)
      end
    end

    # What the server keeps of the role: a password that is salted with that.
    def admit(salt)
      administer do |connection|
        verb = connection.exec("SELECT FROM pg_roles WHERE rolname = '#{ROLE}'").ntuples.zero? ? "CREATE" : "ALTER"
        connection.exec("#{verb} ROLE #{ROLE} LOGIN PASSWORD '#{Scram.secret(PASSWORD, salt:, rounds: ROUNDS)}'")
      end
    end

    def end_backend(process)
      administer { |connection| connection.exec("SELECT pg_terminate_backend(#{process}, 5000)") }
    end

    def administer(&) = PG.connect(Databases.postgresql, &)

    # The server's own log counts those that it refused.
    def wrong_proofs
      administer do |connection|
        log = connection.exec("SELECT pg_read_file(current_setting('data_directory') || '/../server.log')").getvalue(0, 0)
        log.scan(/password authentication failed for user "#{ROLE}"/).size
      end
    end

    # Seconds of CPU.
    # Without what Ruby's collector takes, which may be as long.
    def computing
      GC.start
      GC.disable
      before = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
      yield
      Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - before
    ensure
      GC.enable
    end

    # What libpq's own takes.
    def key_time
      @key_time ||= begin
        keys.each_value { |key| key.challenge = nil }
        computing { connect }
      end
    end
  end
end
