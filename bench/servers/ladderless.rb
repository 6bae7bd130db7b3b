# frozen_string_literal: true

require_relative "fairlead"

module Bench
  module Servers
    # Ours with nobody who stands by, watches, or hands anything over: what does the ladder cost an app in which nothing
    # stalls? There is no such setting: what makes the ladder is taken out. Short responses leave together all the same
    # (`batch_responses`), though nobody would send them beside a request that stalls: else what that spares would hide the price.
    class Ladderless < Fairlead
      def command(site) = ["-r#{site.write("ladderless.rb", REMOVAL)}", *super]

      REMOVAL = <<~RUBY
        require "bundler/setup"
        require "fairlead"
        require "fairlead/serving/server"

        Fairlead::Loop.prepend(Module.new do
          %i[watch register unregister connect_supervisor].each { |name| define_method(name) { |*| nil } }
          def start_watch = batch_responses
        end)
        Fairlead::ReactorGroup.prepend(Module.new { def add_standby = nil })
        Fairlead::Server.prepend(Module.new do
          def observe_stalls(*) = @stall_reporter = Struct.new(:start, :stop).new
        end)
      RUBY
    end
  end
end
