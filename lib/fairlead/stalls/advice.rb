# frozen_string_literal: true

module Fairlead
  class Stall
    # What to do about a stall.
    module Advice
      # Gems that block in C, and alternatives that do not.
      ALTERNATIVES = {
        "mysql2" => "trilogy", "curb" => "Net::HTTP or async-http", "patron" => "Net::HTTP or async-http",
        "typhoeus" => "Net::HTTP or async-http", "ethon" => "Net::HTTP or async-http", "hiredis" => "redis-client",
        "sqlite3" => "a database with a server, where many write"
      }.freeze
      # A frame in which Ruby loads code.
      LOADS = /in [`'](?:Kernel[#.])?(?:require|require_relative|load)'/
      private_constant :ALTERNATIVES, :LOADS

      # @param stall [Stall]
      # @return [String] a sentence.
      def self.for(stall)
        if stall.kind == "computing"
          return "It was loading code, which happens once." if stall.backtrace.first(30).any?(LOADS)
          return "As long as that is so, it needs no change." unless stall.delayed_others?
        end

        other = ALTERNATIVES[stall.gem.to_s[/\A\S+/]]
        case stall.kind
        when "blocked" then "Wrap it in Fairlead.offload { … }#{", or use #{other}" if other}."
        when "stuck"
          "No other thread can run meanwhile: use #{other || "a gem that releases the lock"}, or move it to a job."
        else "Wrap it in Fairlead.offload { … }, or move it to a job."
        end
      end
    end
  end
end
