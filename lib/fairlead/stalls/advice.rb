# frozen_string_literal: true

module Fairlead
  class Stall
    # What to do about a stall.
    module Advice
      # Gems that do not wait the way Ruby knows, and what does.
      ALTERNATIVES = {
        "mysql2" => "trilogy", "curb" => "Net::HTTP or async-http", "patron" => "Net::HTTP or async-http",
        "typhoeus" => "Net::HTTP or async-http", "ethon" => "Net::HTTP or async-http", "hiredis" => "redis-client",
        "sqlite3" => "a database with a server, where many write"
      }.freeze
      # A frame of Ruby's that loads code.
      LOADS = /in [`'](?:Kernel[#.])?(?:require|require_relative|load)'/
      private_constant :ALTERNATIVES, :LOADS

      # @param stall [Stall]
      # @return [String] a sentence.
      def self.for(stall)
        return "It was loading code, which happens once." if stall.kind == "computing" && stall.backtrace.first(30).any?(LOADS)

        other = ALTERNATIVES[stall.gem.to_s[/\A\S+/]]
        case stall.kind
        when "blocked" then "Put it into Fairlead.offload { … }#{", or use #{other}" if other}."
        when "stuck"
          "No thread can run beside it: #{other ? "use #{other}" : "use a gem that lets go of the lock"}, or do it " \
            "in a job."
        else "Put it into Fairlead.offload { … }, or do it in a job."
        end
      end
    end
  end
end
