# frozen_string_literal: true

module Fairlead
  # Picks the server that a command is about, among those that have answered, or says why it cannot.
  class ServerSelection
    # @return [Boolean] whether the server runs in this folder, or was started in it by a link that leads here now.
    def self.here?(server) = server.values_at(:folder, :named).compact.any? { |folder| File.identical?(folder, ".") }

    # @param servers [Array<Hash>] see {ControlSocket.servers}.
    # @param pid [Integer, nil] of the wanted server; nil: the one of this folder, or the only one.
    # @param only_here [Boolean] whether a server of another folder has to be named: a command in the wrong folder must not
    #   change another app's server.
    def initialize(servers, pid: nil, only_here: false)
      @silent, @servers = servers.partition { |server| server[:silent] }
      @pid = pid
      @only_here = only_here
    end

    # @raise [ConfigurationError]
    def server
      found = candidates
      return found.first if found.size == 1
      raise ConfigurationError, "Several servers run. Name one with --pid:\n#{list(found)}" if found.any?

      raise ConfigurationError, "No server of this user #{@silent.any? ? "answers" : "runs"}#{place}.#{others}#{remedy}"
    end

    private

    # After a hot restart, the older supervisor answers until it leaves.
    def candidates
      wanted.group_by { |server| server[:pid] }.map { |_, same| same.max_by { |server| server.dig(:restarts, :generation).to_i } }
    end

    def wanted
      return @servers.select { |server| server[:pid] == @pid } if @pid

      here = @servers.select { |server| ServerSelection.here?(server) }
      here.empty? && !@only_here ? @servers : here
    end

    def place
      return " as process #{@pid}" if @pid

      " in #{Dir.pwd}" if @servers.any?
    end

    def others = @servers.any? ? " These run:\n#{list(@servers)}\n" : " "

    # A server without workers cannot answer while a request holds Ruby's lock.
    def remedy
      return "Name one, like --pid #{@servers.first[:pid]}, or start a server here." if @servers.any? && @silent.empty?
      return "Start one (`fairlead`, `bin/rails server`), or ask as the user who runs it." if @silent.empty?

      "#{@silent.size} did not answer within #{ControlSocket::PATIENCE} s: with `workers 0`, a request that holds Ruby's lock keeps " \
        "the server from answering. Ask again later."
    end

    def list(servers)
      servers.map { |server| "  --pid #{server[:pid]}  #{server[:folder]}  #{server[:addresses].join(" ")}" }.join("\n")
    end
  end
end
