# frozen_string_literal: true

require "json"
require_relative "../parts"

module Fairlead
  # A line for each request that was answered. It is written at once, with one call, so that the lines of
  # several workers do not mix.
  class AccessLog
    # @return [AccessLog, nil] what the option `access_log` asks for; nil: nothing.
    # @raise [ConfigurationError] if its file cannot be opened.
    def self.for(configuration)
      case configuration.access_log
      when "common" then Common.new(open(configuration))
      when "json" then JSONLines.new(open(configuration))
      end
    end

    # @return [IO]
    def self.open(configuration)
      return Log.open_file(configuration) if configuration.log

      $stdout.sync = true
      $stdout
    end
    private_class_method :open

    # @param io [IO]
    def initialize(io)
      @io = io
    end

    # @param request [#queue_time, #duration, #timed_out?] what the server knows of it; the two in seconds.
    # @param env [Hash] the Rack environment.
    # @param status [Integer, nil] nil: unknown, since the app has hijacked the connection.
    # @param bytes [Integer] how much of a body was sent.
    # @param started_at [Time, nil] when it came; nil: as long ago as it took.
    def write(request, env, status, bytes, started_at = nil)
      @io.write(line(request, env, status, bytes, started_at || (Time.now - request.duration)))
    rescue IOError, SystemCallError
      # A full disk, or a reader that has gone, must not fail a request.
      nil
    end

    # Logs a request that the core rejected before it reached the app: by its syntax, its size, or its time.
    #
    # @param request_line [String] as much of it as came.
    # @param address [String] the client's.
    # @param status [Integer]
    # @param reason [String]
    # @param duration [Float] seconds since its first byte.
    def rejected(request_line, address, status, reason, duration)
      @io.write(rejection(request_line, address, status, reason, duration, Time.now - duration))
    rescue IOError, SystemCallError
      nil
    end

    private

    def target(env)
      parts = env.values_at("SCRIPT_NAME", "PATH_INFO").compact
      query = env["QUERY_STRING"]
      parts.push("?", query) unless query.nil? || query.empty?
      # The app may have set some of them, and in other encodings than what has come.
      parts.all?(&:ascii_only?) ? parts.join : parts.map(&:b).join
    end

    # `%h %l %u %t "%r" %>s %b`, as the first web servers wrote it.
    class Common < AccessLog
      private

      def line(_request, env, status, bytes, started_at)
        "#{env["REMOTE_ADDR"] || "-"} - #{escape(env["REMOTE_USER"] || "-")} [#{stamp(started_at)}] " \
          "\"#{env["REQUEST_METHOD"]} #{escape(target(env))} #{env["SERVER_PROTOCOL"]}\" #{status || "-"} " \
          "#{bytes.zero? ? "-" : bytes}\n"
      end

      def rejection(request_line, address, status, reason, _duration, started_at)
        "#{address} - - [#{stamp(started_at)}] \"#{escape(request_line)}\" #{status} #{reason.bytesize + 1}\n"
      end

      # What a client sends must not forge a line, nor command a terminal.
      def escape(text)
        return text if text.ascii_only? && !text.match?(/["\\]|[^ -~]/)

        text.b.gsub(/["\\]|[^ -~]/n) { |byte| format("\\x%02x", byte.ord) }
      end

      # A second's text serves all its requests.
      def stamp(time)
        second = time.to_i
        return @stamp if @second == second

        @second = second
        @stamp = time.strftime("%d/%b/%Y:%H:%M:%S %z")
      end
    end

    # One JSON object a line. `duration` is the time from the first byte of the request to the last of the
    # response, `queue_time` how long of it the request waited until the app was called, `times` what the rest was spent on; all
    # in seconds. `timed_out`
    # is there when it took longer than `request_timeout`: its client got 504, or was cut off.
    class JSONLines < AccessLog
      private

      def line(request, env, status, bytes, started_at)
        fields = {
          time: started_at.strftime("%Y-%m-%dT%H:%M:%S.%6N%:z"),
          remote: env["REMOTE_ADDR"],
          method: env["REQUEST_METHOD"],
          target: target(env),
          protocol: env["SERVER_PROTOCOL"],
          status:, bytes:,
          duration: request.duration.round(6),
          queue_time: request.queue_time.round(6),
          times: times(request),
          timed_out: request.timed_out? || nil,
          host: env["HTTP_HOST"],
          user_agent: env["HTTP_USER_AGENT"],
          referer: env["HTTP_REFERER"],
          request_id: env["action_dispatch.request_id"] || env["HTTP_X_REQUEST_ID"],
          pid: Process.pid
        }
        fields.compact!
        "#{generate(fields)}\n"
      end

      def times(request) = request.times&.transform_values { |seconds| seconds.round(6) }

      # Where there is no method, target and protocol, `line` is what came; `refused` says what was wrong with it.
      def rejection(request_line, address, status, reason, duration, started_at)
        method, target, protocol, more = request_line.split(" ", 4)
        whole = protocol && more.nil?
        fields = {
          time: started_at.strftime("%Y-%m-%dT%H:%M:%S.%6N%:z"), remote: address,
          **(whole ? { method:, target:, protocol: } : { line: request_line }),
          status:, bytes: reason.bytesize + 1, duration: duration.round(6), refused: reason, pid: Process.pid
        }
        "#{generate(fields)}\n"
      end

      def generate(fields)
        JSON.generate(fields.transform_values { |value| value.is_a?(String) && !value.ascii_only? ? readable(value) : value })
      end

      # A client may send any bytes.
      def readable(text)
        text.dup.force_encoding(Encoding::UTF_8).scrub { |bytes| "\\x#{bytes.unpack1("H*")}" }
      end
    end

    private_constant :Common, :JSONLines
  end
end
