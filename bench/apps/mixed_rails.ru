# frozen_string_literal: true

# The published story of a Rails app: a slow query, a slow remote server, and work in C that holds Ruby's lock or does
# not. All take as many seconds as the query string says.

require "active_record/railtie"
require "fiddle"
require "net/http"
require_relative "rails_application"

# As many connections as requests at once, so that none waits for one.
ENV["DATABASE_URL"] = "#{ENV.fetch("DATABASE_URL")}?max_connections=60"

BenchApplication.initialize!

# As in every app that Rails generates: what it inherits from is loaded before the server forks.
class ApplicationRecord < ActiveRecord::Base
  primary_abstract_class
end

SLEEP = ENV["DATABASE_URL"].start_with?("postgres") ? "pg_sleep" : "SLEEP"
REMOTE = IO.popen([RbConfig.ruby, "--disable-gems", File.join(__dir__, "remote.rb"), { err: File::NULL }]).gets.to_i
C = Fiddle.dlopen(nil)["usleep"]
FREE = Fiddle::Function.new(C, [Fiddle::TYPE_INT], Fiddle::TYPE_INT)
HELD = Fiddle::Function.new(C, [Fiddle::TYPE_INT], Fiddle::TYPE_INT, need_gvl: true)

class StoryController < ActionController::Base
  def index = render(plain: "Hello World")

  def slow_sql
    ActiveRecord::Base.with_connection { |connection| connection.execute("SELECT #{SLEEP}(#{seconds})") }
    index
  end

  def remote_io
    Net::HTTP.get(URI("http://127.0.0.1:#{REMOTE}/#{seconds}"))
    index
  end

  def free
    FREE.call((seconds * 1_000_000).to_i)
    index
  end

  def held
    HELD.call((seconds * 1_000_000).to_i)
    index
  end

  private

  def seconds = request.query_string.to_f
end

BenchApplication.routes.draw do
  root to: "story#index"
  %w[slow_sql remote_io free held].each { |action| get action, to: "story##{action}" }
end

run BenchApplication
