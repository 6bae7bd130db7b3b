# frozen_string_literal: true

require_relative "ecosystem"

module Fairlead
  # Gems that keep open connections by thread, or in `Thread.current[…]`.
  # Covers integrations/excon_sockets.rb
  class ClientsTest < EcosystemTest
    # A service that counts its connections and answers each request with what its path ends with.
    class Service
      attr_reader :port

      def initialize
        @server = TCPServer.new("127.0.0.1", 0)
        @server.listen(1024)
        @port = @server.local_address.ip_port
        @count = 0
        @sockets = []
        @thread = Thread.new { loop { take(@server.accept) } }
      end

      # @return [Integer] how many connections have been opened since this was asked last.
      def opened = @count.tap { @count = 0 }

      def finish
        @thread.kill.join
        [@server, *@sockets].each(&:close)
      end

      private

      def take(socket)
        @count += 1
        @sockets << socket
        Thread.new do
          answer(socket) until socket.eof?
        rescue SystemCallError, IOError
          nil # its client has given up
        end
      end

      def answer(socket)
        id = socket.gets[%r{(\w+)\?? HTTP}, 1]
        size = 0
        while (line = socket.gets.chomp) && !line.empty?
          size = line[/\d+/].to_i if line.match?(/\Acontent-length:/i)
        end
        socket.read(size)
        sleep id.start_with?("late") ? 0.2 : 0.01
        body = %({"id":"#{id}","object":"customer"})
        socket.write("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nrequest-id: r\r\ncontent-length: #{body.bytesize}\r\n\r\n#{body}")
      end
    end

    APP = <<~'RUBY'
      require "async"
      require "excon"
      require "json"
      require "stripe"
      SERVICE = "http://127.0.0.1:#{ENV.fetch("SERVICE")}"
      Stripe.api_key = "sk_test_x"
      Stripe.api_base = SERVICE
      Stripe.max_network_retries = 0
      Stripe.enable_telemetry = false
      EXCON = Excon.new(SERVICE, persistent: true)
      # Where the reactor was away until the answer had come, nobody waits any more, and nothing is cut short.
      own = ->(id, answered) { answered.delete_prefix("late").then { |number| number == id ? id : "#{number} instead" } }
      USES = {
        "stripe" => ->(id) { Stripe::Customer.retrieve(id).id },
        "excon" => ->(id) { JSON.parse(EXCON.get(path: "/#{id}").body).fetch("id") },
        "excon_next" => ->(id) { Enumerator.new { |all| all << USES.fetch("excon").call(id) }.next },
        "late_stripe" => ->(id) { own.(id, Timeout.timeout(0.05) { Stripe::Customer.retrieve("late#{id}").id }) rescue id },
        "stopped_stripe" => lambda do |id|
          Async do |task|
            Thread.current[:api_requestor__internal_use_only] = nil
            own.(id, task.with_timeout(0.05) { Stripe::Customer.retrieve("late#{id}").id })
          end.wait
        rescue StandardError
          id
        end,
        "late_excon" => ->(id) { own.(id, Timeout.timeout(0.05) { USES.fetch("excon").call("late#{id}") }) rescue id },
        "traces" => lambda do |id|
          context = Thread.current[:api_requestor__internal_use_only]
          next id unless context

          found = [context.active_requestor, context.default_requestor, context.last_responses].compact
          found.empty? ? id : found.inspect
        end
      }
      run(lambda do |env|
        _, use, id = env["PATH_INFO"].split("/")
        [200, { "content-type" => "text/plain" }, [USES.fetch(use).call(id).to_s]]
      end)
    RUBY

    def teardown
      super
      @service&.finish
    end

    # 25 requests each of 20 clients: there are about as many connections as requests at once, in each reactor that has led,
    # and each has its own answer.
    %w[stripe excon excon_next].each do |use|
      define_method(:"test_#{use}_opens_no_more_connections_than_there_are_requests_at_once") do
        many(use)

        assert_includes 1..250, service.opened, "of 500 requests; on a busy machine up to twelve reactors lead"
      end
    end

    def test_what_was_cut_short_is_not_read_by_a_later_request
      many("stripe", "late_stripe", "traces")
      many("stripe", "stopped_stripe", "traces")
      many("excon", "late_excon")
    end

    private

    def service = @service ||= Service.new

    def server = @server ||= with_server(APP, "--queue-target", "0", env: BUNDLE.merge("SERVICE" => service.port.to_s))

    def many(*uses)
      server
      clients = Array.new(20) do |client|
        Thread.new do
          Array.new(25) do |number|
            id = "c#{client}n#{number}"
            use = uses[(client + number) % uses.size]
            answer = server.get("/#{use}/#{id}")
            "#{use} #{id}: #{answer.code} #{answer.body}" if answer.body != id
          end
        end
      end

      assert_empty clients.flat_map(&:value).compact, server.end_of_log
    end
  end
end
