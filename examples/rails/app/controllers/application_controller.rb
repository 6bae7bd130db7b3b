# frozen_string_literal: true

class ApplicationController < ActionController::Base
  LONGEST = 10.0

  class BadDuration < StandardError; end

  rescue_from BadDuration do |error|
    render plain: "#{error.message}\n", status: :bad_request
  end

  # Which process answered: the page colours by it.
  before_action { response.headers["x-worker-pid"] = Process.pid.to_s }

  private

  # @return [Float] the parameter `duration`, seconds.
  def duration(default)
    given = params[:duration]
    return default if given.blank?

    seconds = Float(given, exception: false)
    return seconds if seconds&.between?(0, LONGEST)

    raise BadDuration, "duration=#{given.to_s.truncate(40)}: give seconds from 0 to #{LONGEST.to_i}."
  end

  # Sends what the block yields, piece by piece. An Enumerator runs in the request's own fiber (or thread); what
  # ActionController::Live would start is a thread.
  def stream(type, &block)
    response.headers["content-type"] = type
    response.headers["cache-control"] = "no-store"
    response.headers["x-accel-buffering"] = "no"
    # Rack::ETag would gather the whole body to make a digest of it.
    response.headers["last-modified"] = Time.now.httpdate
    self.response_body = Enumerator.new(&block)
  end
end
