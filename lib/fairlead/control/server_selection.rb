# frozen_string_literal: true

module Fairlead
  class Inquiry
    # Which of the servers that have answered is meant; or what to say if none is, or none alone.
    class Choice
      # @param servers [Array<Hash>] see {Inquiry.servers}.
      # @param pid [Integer, nil] of the one that is meant; nil: that of this folder, or the only one.
      # @param only_here [Boolean] whether the only one does not do if it runs elsewhere: who is in the wrong folder must not
      #   change another app's server.
      def initialize(servers, pid: nil, only_here: false)
        @silent, @servers = servers.partition { |server| server[:silent] }
        @pid = pid
        @only_here = only_here
      end

      # @return [Hash]
      # @raise [ConfigurationError]
      def server
        found = candidates
        return found.first if found.size == 1
        raise ConfigurationError, "Which server? Name it by --pid:\n#{list(found)}" if found.any?

        raise ConfigurationError, "No server of this user #{@silent.any? ? "answers" : "runs"}#{place}.#{others}#{remedy}"
      end

      private

      # After a hot restart, the older supervisor answers until it leaves.
      def candidates
        meant.group_by { |server| server[:pid] }.map { |_, same| same.max_by { |server| server.dig(:restarts, :generation).to_i } }
      end

      def meant
        return @servers.select { |server| server[:pid] == @pid } if @pid

        here = @servers.select { |server| Inquiry.here?(server) }
        here.empty? && !@only_here ? @servers : here
      end

      # Where it was looked for.
      def place
        return " as process #{@pid}" if @pid

        " in #{Dir.pwd}" if @servers.any?
      end

      def others = @servers.any? ? " There are:\n#{list(@servers)}\n" : " "

      # One that serves without workers cannot answer while a request holds Ruby's lock in it.
      def remedy
        return "Name the one that is meant, as by --pid #{@servers.first[:pid]}, or start one here." if @servers.any? && @silent.empty?
        return "Start one (`fairlead`, `bin/rails server`), or ask as the user who runs it." if @silent.empty?

        "#{@silent.size} #{@silent.size == 1 ? "is" : "are"} there that did not within #{PATIENCE} s: with `workers 0`, a request " \
          "that holds Ruby's lock keeps the server from it. Ask again later."
      end

      def list(servers)
        servers.map { |server| "  --pid #{server[:pid]}  #{server[:folder]}  #{server[:addresses].join(" ")}" }.join("\n")
      end
    end
  end
end
