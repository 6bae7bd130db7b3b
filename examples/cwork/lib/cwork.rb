# frozen_string_literal: true

require "cwork/cwork"
