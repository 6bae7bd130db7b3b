# frozen_string_literal: true

Rails.application.routes.draw do
  root "start#show"
  get "up" => "rails/health#show", as: :rails_health_check

  # What the server does now: once, or as a stream.
  get "status" => "status#show"
  get "status/live" => "status#live"

  Work::KINDS.each_key { |name| get name => "work##{name}" }
  resources :bursts, only: :create

  # An answer of a language model, and a thousand of them beside pages.
  resource :answer, only: :show
  resources :stream_loads, only: :create

  resources :uploads, only: :create
  resource :download, only: :show
  resources :events, only: :index
end
