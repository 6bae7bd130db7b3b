# frozen_string_literal: true

require_relative "../parts"

module Fairlead
  # `fairlead restart`: has a running server start new code, and waits until that serves.
  class Restart < Inquiry::Command
    INTRODUCTION = <<~TEXT
      Usage: fairlead restart [flags]

      Has a running server start its command once more: with the code, the gems and the
      configuration that are there now. It goes on serving until the new one does, and
      no request fails. If the new one cannot serve, nothing changes, and the status is 1.
      (Under `workers 0`, `bin/rails server` and `rackup` another process loads the new
      code. If it can, the server finishes what runs and begins anew; connections wait.)
      The server is the one that runs in this folder; any other has to be named.

    TEXT
    # Seconds between two looks.
    LOOK = 0.1
    # So many looks in a row may find no server: one that begins anew in its own place loads its app meanwhile.
    BLIND = 1200
    private_constant :INTRODUCTION, :LOOK, :BLIND

    private

    def name = "restart"

    def introduction = INTRODUCTION

    def only_here? = true

    # @raise [BootError] if the new code cannot serve.
    def act(server)
      raise ConfigurationError, "The server runs in a container, or in another process namespace. Run the command there." if
        server[:elsewhere]

      Process.kill(:USR2, server[:pid])
      follow(server)
    rescue Errno::ESRCH, Errno::EPERM => error
      raise ConfigurationError, "The server cannot be told: #{error.message} (process #{server[:pid]})."
    end

    # What has answered for the same server.
    def same(server) = @answers.select { |other| other[:pid] == server[:pid] }

    # What has failed before the server was told counts for nothing.
    def follow(server)
      blind = 0
      failures = { begun(server) => server[:restarts][:failures] }
      loop do
        found = same(server)
        found.each { |other| refuse_failure(other, failures) }
        new = found.find { |other| other[:restarts][:serving] && (begun(other) <=> begun(server)) == 1 }
        return tell(new) if new

        blind = found.empty? ? blind + 1 : 0
        give_up(server, "answers no more") if blind > BLIND
        Process.kill(0, server[:pid])
        sleep LOOK
        @answers = @servers.call
      end
    rescue Errno::ESRCH
      give_up(server, "has ended")
    end

    # Tells a later start from an earlier one.
    def begun(server) = [server[:restarts][:generation], server.dig(:status, :started_at)]

    # An older one that serves, while what has answered boots, hears of the failure of that first.
    def refuse_failure(now, failures)
      before = failures[begun(now)] ||= now[:restarts][:failures] + 1
      return unless now[:restarts][:failures] > before

      raise BootError, "The new code could not be started, and the old goes on serving.\n#{now[:restarts][:failure]}"
    end

    def give_up(server, how)
      raise BootError, "The server (process #{server[:pid]}) #{how}: its log says why."
    end

    def tell(server)
      @output.puts "The new code serves #{server[:addresses].join(" ")} (process #{server[:pid]})."
    end
  end
end
