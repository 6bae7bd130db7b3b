# frozen_string_literal: true

class StartController < ApplicationController
  def show
    @kinds = Work::KINDS.values
  end
end
