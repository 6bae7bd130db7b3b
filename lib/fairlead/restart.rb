# frozen_string_literal: true

require_relative "parts"

module Fairlead
  # `fairlead restart`: has a running server start new code, and waits until that serves.
  class Restart < Inquiry::Command
    INTRODUCTION = <<~TEXT
      Usage: fairlead restart [flags]

      Has a running server start its command once more: with the code, the gems and the
      configuration that are there now. It goes on serving until the new one does, and
      no request fails. If the new one cannot serve, nothing changes, and the status is 1.
      The server is the one that runs in this folder, or the only one of this user.

    TEXT
    # Seconds between two looks.
    LOOK = 0.1
    # So many looks in a row may find no server.
    BLIND = 50
    private_constant :INTRODUCTION, :LOOK, :BLIND

    private

    def name = "restart"

    def introduction = INTRODUCTION

    # @raise [BootError] if the new code cannot serve.
    def act(server)
      Process.kill(:USR2, server[:pid])
      follow(server)
    rescue Errno::ESRCH, Errno::EPERM => error
      raise ConfigurationError, "The server cannot be told: #{error.message} (process #{server[:pid]})."
    end

    def follow(server)
      before = server[:restarts]
      blind = 0
      loop do
        sleep LOOK
        found = @servers.call.select { |other| other[:pid] == server[:pid] }
        blind = found.empty? ? blind + 1 : 0
        raise BootError, "The server (process #{server[:pid]}) answers no more." if blind > BLIND

        found.each do |other|
          now = other[:restarts]
          return tell(other) if now[:serving] && now[:generation] > before[:generation]
          next unless now[:generation] == before[:generation] && now[:failures] > before[:failures]

          raise BootError, "The new code could not be started, and the old goes on serving.\n#{now[:failure]}"
        end
      end
    end

    def tell(server)
      @output.puts "The new code serves #{server[:addresses].join(" ")} (process #{server[:pid]})."
    end
  end
end
