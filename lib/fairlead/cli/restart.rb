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
        is 1. (Under `workers 0`, as in development, another process loads the new code
        first. If that succeeds, the server finishes running requests and starts again,
        while connections wait.) A server of another folder has to be named.

      TEXT
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

        newest = answers_of(server).map { |answer| answer[:restarts][:begun] }.max
        Process.kill(:USR2, server[:pid])
        await_generation(newest + 1, server)
      rescue Errno::ESRCH, Errno::EPERM => error
        raise ConfigurationError, "The server cannot be signalled: #{error.message} (process #{server[:pid]})."
      end

      # During a hot restart the supervisors of old and new code answer.
      def answers_of(server) = @answers.select { |answer| answer[:pid] == server[:pid] }

      # A start that had begun before the signal does not count: the one that was asked for follows it.
      def await_generation(generation, server)
        unanswered = 0
        loop do
          found = answers_of(server)
          found.each { |answer| check_failure(answer[:restarts], generation) }
          new = found.find do |answer|
            answer[:restarts][:serving] && (answer[:restarts][:generation] >= generation || began_anew?(answer, server))
          end
          return announce(new) if new && found.one? # the old code takes no more connections

          unanswered = found.empty? ? unanswered + 1 : 0
          fail_with(server, "no longer answers") if unanswered > MOST_UNANSWERED
          Process.kill(0, server[:pid])
          sleep INTERVAL
          @answers = @servers.call
        end
      rescue Errno::ESRCH
        fail_with(server, "has ended")
      end

      # A process that has replaced itself since has loaded the newest code, whichever signal was the reason.
      def began_anew?(answer, server)
        answer[:supervisor] == server[:supervisor] && answer.dig(:status, :started_at).to_f > server.dig(:status, :started_at).to_f
      end

      def check_failure(restarts, generation)
        return unless restarts[:failed].to_i >= generation

        raise BootError, "The new code could not be started; the old code continues to serve.\n#{restarts[:failure]}"
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
