# frozen_string_literal: true

# Fires many requests of a kind at this server at once and streams what becomes of them, one JSON object a line.
#
# A browser keeps to six connections for each host with HTTP/1.1, so the page cannot do it itself. The requests
# come from a process of their own (lib/burst_client.rb): one that shares nothing with the worker that is asked,
# and so measures rightly also while that worker is stuck.
class BurstsController < ApplicationController
  MOST = 200

  def create
    kind = Work::KINDS.fetch(params[:kind]) { return head :not_found }
    seconds = duration(kind.duration)
    count = params.fetch(:count, 50).to_i.clamp(1, MOST)
    client = Rails.root.join("lib/burst_client.rb").to_s
    command = [{ "RUBYOPT" => nil }, RbConfig.ruby, "--disable-gems", client,
      "127.0.0.1", own_port.to_s, "/#{kind.name}?duration=#{seconds}", count.to_s]

    stream("application/x-ndjson") do |lines|
      IO.popen(command) do |burst|
        while (line = burst.gets)
          lines << line
        end
      ensure
        # The reader of this page may have gone before the end.
        Process.kill(:KILL, burst.pid) unless burst.eof?
      end
    end
  end

  private

  # Never an address from the request: this server must not be made to call another.
  def own_port = Integer(ENV["PORT"].presence || request.port)
end
