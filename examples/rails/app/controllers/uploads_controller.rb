# frozen_string_literal: true

require "digest"

class UploadsController < ApplicationController
  def create
    file = params[:file]
    unless file.respond_to?(:read)
      return render plain: "Send a file in the field `file`.\n", status: :bad_request
    end

    seconds = duration(0.0)
    sleep seconds if seconds.positive?
    render json: { name: file.original_filename, bytes: file.size, worker: Process.pid,
                   sha256: Digest::SHA256.file(file.path).hexdigest }
  end
end
