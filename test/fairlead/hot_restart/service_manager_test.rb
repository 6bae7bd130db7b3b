# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  class NotifierTest < Test
    def test_it_says_what_systemd_expects
      listen("@fairlead-#{Process.pid}-#{object_id}") do |notifier, receive|
        notifier.ready(["http://127.0.0.1:1", "unix:/a"])
        assert_equal "READY=1\nMAINPID=#{Process.pid}\nSTATUS=serving http://127.0.0.1:1 unix:/a\n",
                     receive.call
        notifier.reloading
        assert_match(/\ARELOADING=1\nMONOTONIC_USEC=\d+\n/, receive.call)
        notifier.stopping
        assert_match(/\ASTOPPING=1\n/, receive.call)
      end
    end

    def test_a_path_is_as_good_as_an_abstract_name
      Dir.mktmpdir do |folder|
        listen("#{folder}/notify") do |notifier, receive|
          notifier.stopping
          assert_match(/\ASTOPPING=1\n/, receive.call)
        end
      end
    end

    # To a service manager the first process is the main one, whoever serves.
    def test_it_passes_on_what_another_process_says
      listen("@fairlead-#{Process.pid}-#{object_id}") do |notifier, receive|
        said = []
        parent = Struct.new(:said, :watchdog) { def post(message) = said << message.text }.new(said)
        ServiceManager.new({}, parent:).ready(["unix:/a"])
        notifier.pass_on(said.first)

        assert_equal "READY=1\nSTATUS=serving unix:/a\n", receive.call
      end
    end

    def test_without_a_service_manager_nothing_happens
      assert_nil ServiceManager.new({}).stopping
    end

    def test_a_service_manager_that_has_gone_ends_nothing
      Log.io = File.open(File::NULL, "w")

      assert_nil ServiceManager.new({ "NOTIFY_SOCKET" => "/no/such/socket" }).stopping
    ensure
      Log.io = $stderr
    end

    def test_a_service_manager_that_does_not_listen_is_not_waited_for
      Log.io = File.open(File::NULL, "w")
      listen("@fairlead-#{Process.pid}-#{object_id}") do |notifier, _|
        took = duration { 1000.times { notifier.stopping } }

        assert_operator took, :<, 10
      end
    ensure
      Log.io = $stderr
    end

    private

    def listen(name)
      socket = Socket.new(:UNIX, :DGRAM)
      socket.bind(Socket.sockaddr_un(name.sub(/\A@/, "\0")))
      variables = { "NOTIFY_SOCKET" => name }
      notifier = ServiceManager.new(variables)
      assert_empty variables, "no child speaks in our name"
      yield notifier, -> { socket.wait_readable(5) && socket.recv(4096) }
    ensure
      socket.close
    end
  end
end
