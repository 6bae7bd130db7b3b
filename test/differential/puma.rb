# frozen_string_literal: true

require "puma"
require "puma/server"
require "stringio"

module Fairlead
  module Differential
    # What Puma makes of a request; the form is that of test/core/verdicts.c, without the fields, which it has made an
    # environment of.
    module PumaParser
      # What Puma::Client takes for a socket: all that the client has sent, then silence.
      class Wire
        Waiting = Class.new(StandardError) { include IO::WaitReadable }

        def initialize(bytes) = @bytes = bytes

        def read_nonblock(_size, _buffer = nil)
          raise Waiting unless @bytes

          @bytes.tap { @bytes = nil }
        end

        def to_io = self
        def <<(_) = self
        def flush = self
        def peeraddr = ["AF_INET", 1, "127.0.0.1", "127.0.0.1"]
        def local_address = Addrinfo.tcp("127.0.0.1", 80)
        def wait_readable(*) = nil
        def close = nil
      end

      PROTO = { "rack.version" => [1, 6], "SERVER_SOFTWARE" => "", "GATEWAY_INTERFACE" => "CGI/1.2", "SCRIPT_NAME" => "",
                "QUERY_STRING" => "", "SERVER_NAME" => "a", "SERVER_PORT" => "80", "rack.url_scheme" => "http" }.freeze

      # @param bytes [String]
      # @return [String]
      def self.judge(bytes)
        # Its parser writes into what it is given, whoever else has those bytes: a copy that shares none.
        client = Puma::Client.new(Wire.new("".b << bytes), PROTO)
        client.supported_http_methods = :any
        seen = []
        ready = client.try_to_finish
        loop do
          return [*seen, rest_of(client)].join("\t") unless ready

          env = client.env
          seen << "#{env["REQUEST_METHOD"]} #{env["REQUEST_URI"]} #{client.body.tap(&:rewind).read.unpack1("H*")} "
          return [*seen, "closed"].join("\t") unless keep_alive?(env)

          client.tempfile_close
          client.reset
          ready = client.process_back_to_back_requests
        end
      rescue StandardError => error # it answers 500 to its own mistakes
        [*seen, "refused #{error.class.name[/\w+\z/]}"].join("\t")
      ensure
        client&.tempfile_close
      end

      def self.rest_of(client)
        rest = client.instance_variable_get(:@buffer)
        client.in_data_phase || (rest && !rest.delete("\r\n").empty?) ? "more" : "end"
      end
      private_class_method :rest_of

      def self.keep_alive?(env)
        wish = env["HTTP_CONNECTION"].to_s.downcase
        env["SERVER_PROTOCOL"] == "HTTP/1.1" ? wish != "close" : wish == "keep-alive"
      end
      private_class_method :keep_alive?
    end
  end
end
