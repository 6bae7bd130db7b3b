# frozen_string_literal: true

module Fairlead
  class CLI
    # `fairlead restart`: has a running server start new code, and waits until the new code serves.
    class Restart < Command
      INTRODUCTION = <<~TEXT
        Usage: fairlead restart [flags]

        Starts the command of a running server once more, with the code, the gems and the
        configuration that are there now. The old code serves until the new code does, and
        no request fails. If the new code cannot serve, nothing changes, and the exit status
        is 1. (Under `workers 0`, `bin/rails server` and `rackup` another process loads the
        new code first. If that succeeds, the server finishes running requests and starts
        again, while connections wait.) A server of another folder has to be named.

      TEXT
      # Seconds between two checks.
      INTERVAL = 0.1
      # The most checks in a row that find no server: a server that starts again in its own process loads its app meanwhile.
      MOST_UNANSWERED = 1200
      private_constant :INTERVAL, :MOST_UNANSWERED

      private

      def only_here? = true

      # @raise [BootError] if the new code cannot serve.
      def act(server)
        raise ConfigurationError, "The server runs in a container, or in another process namespace. Run the command there." if
          server[:elsewhere]

        Process.kill(:USR2, server[:pid])
        await_new_code(server)
      rescue Errno::ESRCH, Errno::EPERM => error
        raise ConfigurationError, "The server cannot be signalled: #{error.message} (process #{server[:pid]})."
      end

      # Failures from before the signal do not count.
      def await_new_code(server)
        unanswered = 0
        failures = { start_of(server) => server[:restarts][:failures] }
        loop do
          found = @answers.select { |other| other[:pid] == server[:pid] }
          found.each { |other| check_failure(other, failures) }
          new = found.find { |other| other[:restarts][:serving] && (start_of(other) <=> start_of(server)) == 1 }
          return announce(new) if new

          unanswered = found.empty? ? unanswered + 1 : 0
          fail_with(server, "no longer answers") if unanswered > MOST_UNANSWERED
          Process.kill(0, server[:pid])
          sleep INTERVAL
          @answers = @servers.call
        end
      rescue Errno::ESRCH
        fail_with(server, "has ended")
      end

      # Orders the starts of a server.
      def start_of(server) = [server[:restarts][:generation], server.dig(:status, :started_at)]

      # If the supervisor that was found first is still booting, the older one, which serves, gets its failure.
      def check_failure(server, failures)
        before = failures[start_of(server)] ||= server[:restarts][:failures] + 1
        return unless server[:restarts][:failures] > before

        raise BootError, "The new code could not be started; the old code continues to serve.\n#{server[:restarts][:failure]}"
      end

      def fail_with(server, how)
        raise BootError, "The server (process #{server[:pid]}) #{how}. Its log says why."
      end

      def announce(server)
        @output.puts "The new code serves #{server[:addresses].join(" ")} (process #{server[:pid]})."
      end
    end
  end
end
