# frozen_string_literal: true

# Starts a load on this server in a process of its own and streams what the process reports, one JSON object a line.
#
# A browser opens at most six HTTP/1.1 connections to a host, so the page cannot do it itself. A process shares
# nothing with the worker that is asked, and so measures correctly also while that worker is stuck.
class LoadController < ApplicationController
  private

  # @param client [String] a program in lib, which gets the server's host and port before the arguments.
  def relay(client, *arguments)
    command = [{ "RUBYOPT" => nil }, RbConfig.ruby, "--disable-gems", Rails.root.join("lib/#{client}.rb").to_s,
      "127.0.0.1", own_port.to_s, *arguments.map(&:to_s)]

    stream("application/x-ndjson") do |lines|
      IO.popen(command) do |load|
        while (line = load.gets)
          lines << line
        end
      ensure
        # The reader of this page may have gone before the end.
        Process.kill(:KILL, load.pid) unless load.eof?
      end
    end
  end

  # Never an address from the request: this server must not be made to call another.
  def own_port = Integer(ENV["PORT"].presence || request.port)
end
