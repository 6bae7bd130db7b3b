# frozen_string_literal: true

# Opens event streams beside pages, and streams how both fare.
class StreamLoadsController < LoadController
  MOST = 1_000

  def create
    relay("stream_load", params.fetch(:streams, MOST).to_i.clamp(1, MOST), duration(10.0))
  end
end
