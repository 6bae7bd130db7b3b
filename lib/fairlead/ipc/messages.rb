# frozen_string_literal: true

require "json"

module Fairlead
  # What the processes of a server tell each other over a {Channel}: one line of JSON each.
  module Messages
    # --- Worker → supervisor

    # It serves, or would: see {Rehearsal}.
    Ready = Data.define
    # It could not start, and ends. From a supervisor to the init process too, which passes it on to the serving supervisor.
    # @!attribute description [String] complete: what, file, line, what to do.
    Failed = Data.define(:description)
    # It is stuck, requests wait, and no sibling can take them.
    Relief = Data.define
    # Requests that hold Ruby's lock wait, and belong in a lane worker.
    Lane = Data.define
    # A stall of one of its reactors is over.
    # @!attribute stall [Hash] the fields of a Stall.
    Stalled = Data.define(:stall)
    # A request has kept one of its reactors away for longer than `stuck_timeout`. The watch thread writes this message and the
    # next, since no Ruby may run (ext/fairlead/core/watch/report.c).
    # @!attribute kind [String] "blocked", "stuck" (it sleeps with Ruby's lock) or "computing".
    # @!attribute request [String] "GET /path", with what could not stand in a URL as "%0a"; empty: it is none.
    Stuck = Data.define(:kind, :request)
    # A stall goes on.
    # @!attribute number [Integer] of the reactor
    # @!attribute began [Integer] on the core's clock
    # @!attribute seconds [Float] its length so far
    # @!attribute kind [String] "stuck" or "computing"
    # @!attribute standby [Boolean] whether the lead went to a standby reactor
    # @!attribute relief [Boolean] whether a relief worker was asked for
    # @!attribute handed [Integer] how many requests went to other workers
    # @!attribute sibling [Integer] the slot of the last of them; -1: none
    Lasting = Data.define(:number, :began, :seconds, :kind, :request, :standby, :relief, :handed, :sibling)
    # The answer to {Show}.
    # @!attribute pools [Array<Hash>] see {PoolReports.collect}.
    # @!attribute requests [Hash, nil] see {Server#requests}.
    Shown = Data.define(:pools, :requests)
    # The reactor that drives its loop has answered {Ping}.
    Pong = Data.define

    # --- Supervisor → worker

    # Finish running requests, then end.
    # @!attribute handover [Boolean] whether siblings go on serving: then idle connections go to them.
    Drain = Data.define(:handover)
    Stop = Data.define
    Reopen = Data.define
    # Report your database pools.
    Show = Data.define
    # Report that you are well.
    Ping = Data.define
    # Close so many idle connections to a database server, for which others wait.
    Spare = Data.define(:server, :count)

    # --- Supervisor → init process

    # All workers serve. The listening sockets come along, and then the memory of session tickets, if there is one.
    # @!attribute listeners [Array<Array>] of each the address in the configuration, and the inode of its file.
    Serving = Data.define(:listeners)
    # A text for the service manager.
    Notify = Data.define(:text)
    Restart = Data.define
    # It was told to end by a signal of its own, and drains.
    Stopping = Data.define
    # What it retains of `database_connections`, for newer generations.
    # @!attribute supervisor [Integer] its process id.
    # @!attribute servers [Array<Array(Integer, Integer)>] the number of a database server, and connections.
    # @!attribute rest [Integer] of each other server.
    RetainedConnections = Data.define(:supervisor, :servers, :rest) do
      def of(server) = servers.find { |known, _| known == server }&.last || rest
    end
    # How many connections to a database server it needs in all, for older generations.
    ConnectionRequest = Data.define(:server, :count)

    # --- Init process → supervisor, beside Failed, RetainedConnections and ConnectionRequest

    # A signal has come. A second TERM or INT means: at once.
    Signaled = Data.define(:signal)
    # A newer generation is being started.
    Starting = Data.define(:generation)
    # A newer generation serves, so this one ends.
    Retire = Data.define

    TYPES = constants.map { |name| const_get(name) }.to_h { |type| [type.name[/\w+\z/].downcase, type] }.freeze
    private_constant :TYPES

    def self.dump(message) = json([TYPES.key(message.class), message.to_h]) << "\n"

    # JSON of strings from outside. Where the locale is C, Ruby takes the bytes of paths and arguments for broken ASCII.
    def self.json(value)
      JSON.generate(value)
    rescue JSON::GeneratorError, EncodingError
      JSON.generate(utf8(value))
    end

    def self.utf8(value)
      case value
      when String then value.dup.force_encoding(Encoding::UTF_8).scrub
      when Array then value.map { |one| utf8(one) }
      when Hash then value.transform_values { |one| utf8(one) }
      else value
      end
    end
    private_class_method :utf8

    # @return [Data] one of those above.
    # @raise [Error] if it is none of them.
    def self.parse(line)
      type, fields = JSON.parse(line)
      raise ArgumentError, "no fields" unless fields.is_a?(Hash)

      TYPES.fetch(type).new(**fields.transform_keys(&:to_sym))
    rescue JSON::ParserError, KeyError, ArgumentError => error
      raise Error, "Not a message: #{line[0, 200].inspect} (#{error.message[0, 200]})"
    end
  end
end
