# frozen_string_literal: true

require_relative "../../../helper"

module Fairlead
  # A client that goes before its answer: with `cancel_abandoned`, its request ends where it waits.
  class ClientGoneTest < Test
    APP = <<~RUBY
      run(lambda do |env|
        File.write("begun", "")
        begin
          sleep(30)
        rescue Exception => error
          File.write("ended", error.class.name)
          raise
        end
        File.write("ended", "in peace")
        [200, { "content-type" => "text/plain" }, ["done"]]
      end)
    RUBY

    def test_a_request_whose_client_has_closed_its_connection_is_cancelled
      with_server(APP, "--cancel-abandoned") do |server|
        ask(server, &:close)

        assert_equal "Fairlead::ClientGone", ending(server, within: 25)
        refute_includes server.log, "ClientGone"
      end
    end

    def test_a_request_whose_connection_was_reset_is_cancelled
      with_server(APP, "--cancel-abandoned") do |server|
        ask(server) do |socket|
          socket.setsockopt(Socket::Option.linger(true, 0))
          socket.close
        end

        assert_equal "Fairlead::ClientGone", ending(server, within: 25)
      end
    end

    def test_a_client_that_says_that_it_has_said_all_gets_its_answer
      with_server(APP.sub("sleep(30)", "sleep(1)"), "--cancel-abandoned") do |server|
        server.connect do |socket|
          socket.write("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
          socket.close_write

          assert_includes socket.read, "done"
        end
      end
    end

    def test_without_the_option_a_request_goes_on
      with_server(APP.sub("sleep(30)", "sleep(1)")) do |server|
        ask(server, &:close)

        assert_equal "in peace", ending(server, within: 10)
      end
    end

    def test_a_request_that_computes_as_its_client_goes_is_cancelled_at_its_next_wait
      compute = "limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 1; " \
                "nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < limit; File.write(\"computed\", \"\"); sleep(30)"
      with_server(APP.sub("sleep(30)", compute), "--cancel-abandoned") do |server|
        ask(server, &:close)

        assert_equal "Fairlead::ClientGone", ending(server, within: 25)
        assert_path_exists server.path("computed")
      end
    end

    def test_a_task_that_writes_for_a_stream_is_cancelled_with_it
      app = <<~RUBY
        run(lambda do |env|
          File.write("begun", "")
          env["rack.response_finished"] << ->(*) { File.write("finished", "") }
          body = lambda do |_stream|
            Async do
              sleep
            rescue Fairlead::ClientGone => error
              File.write("ended", error.class.name)
              raise
            end
          end
          [200, {}, body]
        end)
      RUBY
      with_server(app, "--cancel-abandoned") do |server|
        ask(server, &:close)

        assert_equal "Fairlead::ClientGone", ending(server, within: 25)
        eventually("the request is over", within: 25) { File.exist?(server.path("finished")) }
      end
    end

    private

    def ask(server)
      socket = server.connect
      socket.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
      eventually("the request runs") { File.exist?(server.path("begun")) }
      yield socket
    end

    def ending(server, within:)
      eventually("the request has ended", within:) do
        File.exist?(server.path("ended")) && File.read(server.path("ended")).then { |text| text unless text.empty? }
      end
    end
  end
end
