# frozen_string_literal: true

# Server-sent events: ten of them, spread over `duration` seconds.
class EventsController < ApplicationController
  COUNT = 10

  def index
    pause = duration(5.0) / COUNT
    stream("text/event-stream") do |events|
      (1..COUNT).each do |number|
        data = { number:, of: COUNT, at: Time.now.iso8601(3), worker: Process.pid }
        events << "id: #{number}\ndata: #{data.to_json}\n\n"
        sleep pause
      end
      # Without it the browser would ask again and again.
      events << "event: end\ndata: {}\n\n"
    end
  end
end
