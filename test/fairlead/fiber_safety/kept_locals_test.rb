# frozen_string_literal: true

require "async"
require "net/http"
require_relative "../../helper"

module Fairlead
  class KeptLocalsTest < Test
    def setup
      super
      KeptLocals.establish
      @server = TCPServer.new("127.0.0.1", 0)
    end

    def teardown
      @server.close
      super
    end

    # With an exception that is no StandardError: Net::HTTP itself would leave the connection as it is.
    def test_an_exchange_that_is_cut_short_closes_its_connection
      read = Thread::Queue.new
      service = Thread.new { 2.times.map { serve(read) } }
      http = Net::HTTP.new("127.0.0.1", @server.local_address.ip_port)
      http.start
      Sync do |task|
        exchange = task.async { http.get("/late") }
        read.pop
        exchange.stop

        assert_equal "/next", http.get("/next").body
      end
      http.finish
      service.join
    end

    def test_only_known_clients_are_kept
      refute KeptLocals.keep?(:client, Object.new)
      assert KeptLocals.keep?(:api_requestor__internal_use_only, Object.new)
    end

    def test_a_client_that_has_more_than_connections_is_not_kept
      context = Struct.new(:default_requestor).new("a request's")
      context.instance_variable_set(:@default_connection_managers, { 1 => Object.new })
      kept = [KeptLocals.keep?(:api_requestor__internal_use_only, context)]
      context.instance_variable_set(:@of_this_request, "who asks")
      kept << KeptLocals.keep?(:api_requestor__internal_use_only, context)

      assert_equal [true, false], kept
      assert_nil context.default_requestor
    end

    private

    # Answers with the path, of what is late too late.
    def serve(read)
      socket = @server.accept
      while (path = socket.gets&.split&.at(1))
        nil until socket.gets == "\r\n"
        read.push(path)
        sleep 0.1 if path == "/late"
        socket.write("HTTP/1.1 200 OK\r\ncontent-length: #{path.bytesize}\r\n\r\n#{path}")
      end
    rescue SystemCallError
      nil # it was closed
    ensure
      socket.close
    end
  end
end
