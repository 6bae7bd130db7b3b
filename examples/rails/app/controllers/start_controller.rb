# frozen_string_literal: true

class StartController < ApplicationController
  def show
    @kinds = Work::KINDS.values
    @measured = StreamsReport.read
  end
end
