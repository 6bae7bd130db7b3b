# frozen_string_literal: true

require "net/http"
require "socket"
require "tmpdir"
require_relative "../bench/harness/free_port"

module Fairlead
  # bin/demo, as a user starts it, in a process of its own with a database of its own. It gets a process group,
  # as in a terminal; {#finish} ends no process but these.
  class DemoProcess
    ROOT = File.expand_path("..", __dir__)

    attr_reader :pid, :status

    # @param env [Hash{String => String, nil}] environment variables, such as DATABASE_URL. Without a PORT it has to find one.
    def initialize(*flags, env: {})
      @folder = Dir.mktmpdir("fairlead-demo-")
      @log = File.join(@folder, "output.log")
      env = { "PORT" => Bench::FreePort.find.to_s, "DATABASE_URL" => nil, "WEB_CONCURRENCY" => nil, "RAILS_ENV" => nil,
              "RACK_ENV" => nil, "DEMO_SQLITE" => File.join(@folder, "demo.sqlite3"), **env }
      @port = env["PORT"]&.to_i
      @pid = Process.spawn(env, File.join(ROOT, "bin/demo"), *flags,
        in: File::NULL, %i[out err] => @log, pgroup: true)
    end

    # @return [Integer, nil] if it had to find one: nil until it has said which.
    def port = @port ||= log[%r{^  addresses  http://127\.0\.0\.1:(\d+)$}, 1]&.to_i

    def address = "http://127.0.0.1:#{port}/"

    def get(path, **parameters)
      uri = URI.join(address, path)
      uri.query = URI.encode_www_form(parameters) unless parameters.empty?
      Net::HTTP.get_response(uri)
    end

    def ready?
      raise "bin/demo ended (#{status}):\n#{log}" if ended?

      port && get("up").is_a?(Net::HTTPSuccess)
    rescue Errno::ECONNREFUSED
      false
    end

    def log = File.read(@log)

    # Control-C in the terminal: every process of the group gets it.
    def interrupt = Process.kill(:INT, -@pid)

    def ended?
      return true if @status

      _, @status = Process.wait2(@pid, Process::WNOHANG)
      @status ? true : false
    end

    def finish
      return if @finished

      @finished = true
      unless ended?
        Process.kill(:KILL, -@pid)
        _, @status = Process.wait2(@pid)
      end
      FileUtils.remove_entry(@folder)
    end
  end
end
