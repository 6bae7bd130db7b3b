# frozen_string_literal: true

# A file that is made while it is sent, over `duration` seconds.
class DownloadsController < ApplicationController
  PIECE = "All is well aboard. " * 3_200 # 64,000 bytes
  PIECES = 160

  def show
    pause = duration(2.0) / PIECES
    response.headers["content-disposition"] = ActionDispatch::Http::ContentDisposition.format(
      disposition: "attachment", filename: "fairlead-demo.txt"
    )
    stream("text/plain") do |body|
      PIECES.times do
        body << PIECE
        sleep pause if pause.positive?
      end
    end
  end
end
