# frozen_string_literal: true

# What the server does now, from the page of memory that all its workers share: any of them can answer.
class StatusController < ApplicationController
  EVERY = 0.25 # seconds
  # After which the browser asks again, perhaps another worker.
  LASTS = 60.0

  def show
    render json: status
  end

  def live
    stream("text/event-stream") do |events|
      (LASTS / EVERY).to_i.times do
        now = status
        events << "data: #{now.to_json}\n\n"
        # The server finishes what runs before it ends: an open page shall not hold it up.
        break if now[:workers].any? { |worker| worker[:pid] == now[:pid] && worker[:state] == :draining }

        sleep EVERY
      end
    end
  end

  private

  def status
    { at: Process.clock_gettime(Process::CLOCK_MONOTONIC), pid: Process.pid, **Fairlead.stats }
  end
end
