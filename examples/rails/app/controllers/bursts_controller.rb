# frozen_string_literal: true

# Fires many requests of a kind at this server at once and streams what becomes of them.
class BurstsController < LoadController
  MOST = 200

  def create
    kind = Work::KINDS.fetch(params[:kind]) { return head :not_found }
    seconds = duration(kind.duration)
    count = params.fetch(:count, 50).to_i.clamp(1, MOST)
    relay("burst_client", "/#{kind.name}?duration=#{seconds}", count)
  end
end
