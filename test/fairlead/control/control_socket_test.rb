# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # Servers are found and asked without a port, and on Linux without a file.
  # Covers control/control_server.rb, control/socket_namespace.rb
  class ControlSocketTest < Test
    def place = @place ||= place_of("")
    def place_of(group) = SocketNamespace::Abstract.new(group)

    def test_who_answers_is_found
      answering({ pid: Process.pid, text: "ä" * 75_000 }) do
        assert_includes ControlSocket.servers(place), { pid: Process.pid, text: "ä" * 75_000 }
      end
    end

    def test_an_answer_may_be_longer_than_the_kernel_takes_at_once
      answering({ pid: -4, text: "ä" * 1_000_000 }) do
        assert_includes ControlSocket.servers(place).map { |server| server.values_at(:pid, :text) }, [-4, "ä" * 1_000_000]
      end
    end

    # Where the locale is C, paths come as ASCII that is broken.
    def test_text_that_is_not_valid_is_said_as_well_as_can_be
      answering({ pid: -6, text: "gr\u00fcn \xff".b, folder: "gr\u00fcn".dup.force_encoding("US-ASCII") }) do
        assert_includes ControlSocket.servers(place), { pid: -6, text: "grün \u{fffd}", folder: "grün" }
      end
    end

    def test_what_cannot_be_said_ends_nobody
      Log.io = log = StringIO.new
      answering({ pid: -5, number: Float::NAN }) do |socket|
        2.times { ControlSocket.servers(place) }

        assert_match(/could not be answered: .*GeneratorError/, log.string)
        refute_empty socket.ios.reject(&:closed?)
      end
    ensure
      Log.io = $stderr
    end

    def test_without_a_descriptor_for_a_client_it_pauses
      socket = ControlSocket.new(place) { {} }
      socket.instance_variable_get(:@io).define_singleton_method(:accept_nonblock) { |**| raise Errno::ENFILE }
      socket.answer_clients

      assert_empty socket.ios
    ensure
      socket&.close
    end

    def test_who_has_gone_is_not
      answering({ pid: -1 }) { nil }

      refute_includes ControlSocket.servers(place), { pid: -1 }
    end

    def test_servers_of_another_group_are_not_found
      groups = ["", "one", "two"].to_h { |group| [group, place_of(group)] }
      groups.each do |group, own|
        answering({ pid: -9 }, own) do
          assert_equal [group], groups.select { |_, other| ControlSocket.servers(other).include?({ pid: -9 }) }.keys
        end
      end
    end

    def test_who_is_forked_meanwhile_leaves_it_open
      answering({ pid: -3 }) do |socket|
        Process.wait(fork { socket.close.then { exit!(0) } })

        assert_includes ControlSocket.servers(place), { pid: -3 }
      end
    end

    def test_a_client_that_says_and_reads_nothing_holds_up_nobody
      answering({ pid: -2 }) do |socket|
        clients = Array.new(3) { Socket.new(:UNIX, :STREAM).tap { |client| client.connect(socket.ios.first.local_address) } }

        assert_includes ControlSocket.servers(place), { pid: -2 }
        clients.each(&:close)
      end
    end

    # Who it is, the kernel says. Only root can become somebody else here.
    def test_other_users_get_nothing
      return unless Process.euid.zero?

      answering({ pid: -8, secret: "of this user" }) do |socket|
        address = socket.ios.first.local_address
        assert_equal "of this user", JSON.parse(heard_at(address), symbolize_names: true)[:secret]
        assert_equal "heard: ", as_another_user { "heard: #{heard_at(address)}" }
        assert_equal "[]", as_another_user { ControlSocket.servers(place).to_s }
      end
    end

    def test_root_believes_other_users_only_what_is_of_their_own_processes
      return unless Process.euid.zero?

      File.chmod(0o1777, @folder) if @folder
      pipe = IO.popen("-") || answer_as_another_user([Process.ppid, nil, "1; true", Process.pid])
      assert_equal "open\n", pipe.gets
      found = ControlSocket.servers(place).select { |server| server[:supervisor] == pipe.pid }

      assert_equal [pipe.pid], found.map { |server| server[:pid] }
    ensure
      Process.kill(:KILL, pipe.pid) if pipe
      pipe&.close
    end

    def test_one_that_does_not_answer_is_said_to_be_there
      socket = ControlSocket.open(place) { {} }

      assert_includes ControlSocket.servers(place, patience: 0.01), { silent: true }
      error = assert_raises(ConfigurationError) { ServerSelection.new([{ silent: true }]).server }

      assert_equal "No server of this user answers. 1 did not answer within 2 s: with `workers 0`, a request that holds Ruby's lock " \
                   "keeps the server from answering. Ask again later.", error.message
      assert_equal 7, ServerSelection.new([{ silent: true }, { pid: 7, folder: "/" }]).server[:pid]
    ensure
      socket&.close
    end

    def test_what_is_no_answer_is_none
      server = Socket.new(:UNIX, :STREAM)
      server.bind(Socket.sockaddr_un(place.new_address))
      server.listen(1)
      thread = Thread.new { server.accept.first.tap { |client| client.write("{not JSON") }.close }

      assert_kind_of Array, ControlSocket.servers(place)
      thread.join
    ensure
      server&.close
    end

    private

    # @return [String] all that the server says; nothing where this user may not even connect.
    def heard_at(address)
      Socket.open(:UNIX, :STREAM) { |client| client.connect(address).zero? && client.read }
    rescue SystemCallError
      ""
    end

    # In a process of its own, which never returns: answers as so many servers.
    #
    # @param pids [Array] what they say their process ids are.
    def answer_as_another_user(pids)
      Process::Sys.setgid(65_534)
      Process::Sys.setuid(65_534)
      sockets = pids.map { |pid| ControlSocket.new(place_of("")) { { pid:, supervisor: Process.pid } } }
      $stdout.write("open\n")
      $stdout.flush
      loop { sockets.each(&:answer_clients) if IO.select(sockets.flat_map(&:ios)) }
    end

    # @return [String] what the block returns in a process of a user without any rights.
    def as_another_user
      IO.popen("-", err: File::NULL) do |pipe|
        next pipe.read if pipe

        begin
          Process::Sys.setgid(65_534)
          Process::Sys.setuid(65_534)
          print yield
          $stdout.flush
        ensure
          exit!(0)
        end
      end
    end

    def answering(answer, own = place)
      socket = ControlSocket.open(own) { answer }
      thread = Thread.new { socket.answer_clients while socket.ios.first.wait_readable }
      yield socket
    ensure
      thread&.kill&.join
      socket&.close
    end
  end

  # The same with files, as on systems without an abstract namespace.
  class ControlSocketInFolderTest < ControlSocketTest
    def setup
      super
      @folder = Dir.mktmpdir("control-")
    end

    def place_of(group) = SocketNamespace::Folder.new(group, place: "#{@folder}/of-")

    def teardown
      FileUtils.remove_entry(@folder)
      super
    end

    def test_no_file_is_left
      answering({ pid: -1 }) { refute_empty place.addresses }

      assert_empty place.addresses
    end

    def test_the_file_of_one_that_was_killed_is_removed
      server = UNIXServer.new(place.new_address)
      server.close

      refute_empty place.addresses
      assert_empty ControlSocket.servers(place)
      assert_empty place.addresses
    end

    def test_whatever_else_is_there_is_left_alone
      folder = File.dirname(place.new_address)
      others = ["config.ru", "fairlead-#{"0" * 16}.sock"].map { |name| File.join(folder, name).tap { |path| File.write(path, "") } }
      others << File.join(folder, "other.sock")
      UNIXServer.new(others.last).close

      assert_empty ControlSocket.servers(place)
      others.each { |path| assert_path_exists path }
    end

    def test_a_folder_to_which_others_may_write_is_not_used
      File.chmod(0o777, File.dirname(place.new_address))

      assert_nil(ControlSocket.open(place) { {} })
    end
  end
end
