# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # Covers listening/address.rb, listening/bind_error.rb, listening/inherited_sockets.rb
  class ListenerTest < Test
    def setup
      super
      @folder = Dir.mktmpdir("fairlead-")
      @listeners = []
    end

    def teardown
      @listeners.each(&:close)
      FileUtils.remove_entry(@folder)
      super
    end

    def test_port_0_takes_a_free_one_and_says_which
      listener = open("http://127.0.0.1:0")

      assert_operator listener.port, :>, 0
      assert_equal "http://127.0.0.1:#{listener.port}", listener.uri
      assert_equal ["http", "127.0.0.1", nil], [listener.scheme, listener.host, listener.path]
      refute_predicate listener, :unix?
      TCPSocket.new("127.0.0.1", listener.port).close
    end

    def test_its_socket_does_not_block_and_is_closed_on_exec
      listener = open("http://127.0.0.1:0")

      assert_predicate listener.io, :nonblock?
      assert_predicate listener.io, :close_on_exec?
    end

    def test_ipv6
      listener = open("http://[::1]:0")

      assert_equal "http://[::1]:#{listener.port}", listener.uri
      TCPSocket.new("::1", listener.port).close
    end

    def test_every_interface_by_ipv6_is_every_interface_by_ipv4_too
      listener = open("http://[::]:0")

      TCPSocket.new("127.0.0.1", listener.port).close
      TCPSocket.new("::1", listener.port).close
      assert_equal "http://[::]:#{listener.port}", listener.uri
    end

    def test_the_same_address_twice_is_once
      port = open("http://127.0.0.1:0").tap(&:close).port

      assert_equal 1, (@listeners = Listener.open_all(["http://127.0.0.1:#{port}"] * 2)).size
    end

    def test_localhost_is_both_loopback_addresses
      first, second = @listeners = Listener.open_all(["http://localhost:0"])

      assert_equal ["http://127.0.0.1:#{first.port}", "http://[::1]:#{first.port}"], [first.uri, second.uri]
    end

    def test_a_taken_port_is_named_with_what_to_do
      taken = open("http://127.0.0.1:0")
      error = refused(taken.uri)

      assert_match(/\A#{taken.uri} is taken: another server listens there.*--port/, error)
    end

    def test_if_one_address_is_refused_none_stays_open
      taken = open("http://127.0.0.1:0")
      free = "unix:#{@folder}/a.sock"

      assert_raises(ConfigurationError) { Listener.open_all([free, taken.uri]) }
      refute_path_exists "#{@folder}/a.sock"
    end

    def test_a_unix_socket
      listener = open("unix:#{@folder}/a.sock?mode=0600")

      assert_predicate listener, :unix?
      assert_equal "unix:#{@folder}/a.sock", listener.uri
      assert_equal 0o600, File.stat(listener.path).mode & 0o777
      UNIXSocket.new(listener.path).close
      listener.close
      refute_path_exists listener.path
    end

    def test_an_address_may_have_options
      listener = open("http://127.0.0.1:0?proxy_protocol=1")

      assert_equal [true, "http://127.0.0.1:#{listener.port}"], [listener.proxied?, listener.uri]
      refute_predicate open("http://127.0.0.1:0?proxy_protocol=0"), :proxied?
      assert_predicate open("unix:#{@folder}/a.sock?mode=0600&proxy_protocol=1"), :proxied?
      assert_equal 2, (@listeners += Listener.open_all(["http://127.0.0.1:0?proxy_protocol=1"] * 2)).last(2).map(&:port).uniq.size
      assert_match(/there is no option mode here/, refused("http://127.0.0.1:0?mode=0600"))
      assert_match(/"proxy_protocol=yes" is no option/, refused("http://127.0.0.1:0?proxy_protocol=yes"))
    end

    def test_a_socket_gets_the_options_of_the_newest_configuration
      listener = open("http://127.0.0.1:0")
      uri = "#{listener.uri}?proxy_protocol=1"

      assert listener.is?(uri)
      listener.adopt(uri)
      assert_equal [true, uri], [listener.proxied?, listener.asked]
      inherited = Listener.new(listener.io.dup).tap { |other| @listeners << other }
      assert inherited.is?(uri)
      inherited.adopt(uri)
      assert_equal [true, nil], [inherited.proxied?, inherited.asked]
    end

    def test_a_name_without_a_file
      name = "@fairlead-#{Process.pid}"
      listener = open("unix://#{name}")

      assert_equal ["unix:#{name}", name], [listener.uri, listener.path]
      assert listener.is?("unix:#{name}")
      UNIXSocket.new("\0#{name.delete_prefix("@")}").close
      assert_match(/\Aunix:#{name} is taken: another server listens there\. Stop it/, refused("unix:#{name}"))
      listener.close
      open("unix:#{name}")
      refute_path_exists name
      assert_match(/a name without a file has no permissions/, refused("unix:#{name}?mode=0600"))
    end

    def test_a_forked_child_leaves_the_socket_file_alone
      listener = open("unix:#{@folder}/a.sock")
      Process.wait(fork { listener.close || exit!(0) })

      assert_path_exists listener.path
    end

    def test_a_socket_file_that_another_server_has_made_since_is_left_alone
      listener = open("unix:#{@folder}/a.sock")
      File.rename(listener.path, "#{@folder}/old.sock")
      other = open("unix:#{@folder}/a.sock")
      listener.close

      UNIXSocket.new(other.path).close
      assert_path_exists other.path
    end

    def test_the_socket_file_of_a_server_that_was_killed_is_replaced
      Socket.unix_server_socket("#{@folder}/a.sock").close
      assert_path_exists "#{@folder}/a.sock"

      UNIXSocket.new(open("unix:#{@folder}/a.sock").path).close
    end

    def test_the_socket_file_of_a_living_server_is_not_replaced
      listener = open("unix:#{@folder}/a.sock")

      assert_match(/is taken: another server answers there/, refused("unix:#{@folder}/a.sock"))
      UNIXSocket.new(listener.path).close
    end

    def test_a_file_that_is_no_socket_is_never_removed
      File.write("#{@folder}/data", "precious")

      assert_match(/data exists and is no socket/, refused("unix:#{@folder}/data"))
      assert_equal "precious", File.read("#{@folder}/data")
    end

    def test_other_refusals_say_what_would_be_right
      assert_match(/looks like http:/, refused("nonsense"))
      assert_match(/looks like http:/, refused("http://127.0.0.1:port"))
      assert_match(/looks like http:/, refused("ftp://127.0.0.1:1"))
      assert_match(/a port is a number from 0 to 65535/, refused("http://127.0.0.1:70000"))
      assert_match(/no interface of this machine has the address 192\.0\.2\.1/,
                   refused("http://192.0.2.1:8080"))
      assert_match(/the host no-such-host\.invalid is not known/, refused("http://no-such-host.invalid:8080"))
      assert_match(%r{cannot be bound: there is no folder #{@folder}/no/such\. Create it},
                   refused("unix:#{@folder}/no/such/folder.sock"))
      assert_match(/cannot be bound/, refused("unix:/#{"long" * 40}"))
    end

    def test_without_variables_nothing_is_inherited
      assert_empty Listener::InheritedSockets.take({})
      assert_empty Listener::InheritedSockets.take({ "LISTEN_FDS" => "1", "LISTEN_PID" => "1" }), "meant for another process"
    end

    def test_the_variables_are_removed_so_that_no_child_believes_them
      variables = { "LISTEN_FDS" => "0", "LISTEN_PID" => Process.pid.to_s, "LISTEN_FDNAMES" => "web" }
      Listener::InheritedSockets.take(variables)

      assert_empty variables
    end

    private

    def open(uri)
      listener = Listener.open(uri)
      @listeners << listener
      listener
    end

    def refused(uri) = assert_raises(ConfigurationError) { Listener.open(uri).close }.message
  end
end
