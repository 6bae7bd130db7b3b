# frozen_string_literal: true

require "json"
require_relative "../parts"

module Fairlead
  # What the processes of a server tell each other over a {Channel}: one line of JSON each.
  module Messages
    # Worker → supervisor: it serves.
    Ready = Data.define

    # Child → parent: it could not start, and ends. Init process → supervisor: the new code could not be started.
    # @!attribute description [String] complete: what, file, line, what to do.
    Failed = Data.define(:description)

    # Worker → supervisor: it is stuck, requests wait, and no sibling can take them.
    Relief = Data.define

    # Worker → supervisor: requests that hold Ruby's lock wait, and belong in a lane worker.
    Lane = Data.define

    # Worker → supervisor: a stall of one of its reactors is over.
    # @!attribute stall [Hash] the fields of a Stall.
    Stalled = Data.define(:stall)

    # Worker → supervisor: a request has kept one of its reactors away for longer than `stuck_timeout`.
    # @!attribute kind [String] "blocked", "stuck" (it sleeps with Ruby's lock) or "computing".
    # @!attribute request [String] "GET /path", with what could not stand in a URL as "%0a"; empty: it is none.
    Stuck = Data.define(:kind, :request)

    # Worker → supervisor: a stall goes on, and no Ruby runs beside it that could say more. The watch thread writes this
    # message, and Stuck (ext/fairlead/core/report.c).
    # @!attribute number [Integer] of the reactor
    # @!attribute began [Integer] on the core's clock
    # @!attribute seconds [Float] its length so far
    # @!attribute kind [String] "stuck" or "computing"
    # @!attribute request [String] as above
    # @!attribute standby [Boolean] whether the lead went to a standby reactor
    # @!attribute relief [Boolean] whether a relief worker was asked for
    # @!attribute handed [Integer] how many requests went to other workers
    # @!attribute sibling [Integer] the slot of the last of them; -1: none
    Lasting = Data.define(:number, :began, :seconds, :kind, :request, :standby, :relief, :handed, :sibling)

    # Worker → supervisor: the answer to {Show}.
    # @!attribute pools [Array<Hash>] see {PoolReports.collect}.
    Shown = Data.define(:pools)

    # Worker → supervisor: whoever drives its loop has answered {Ping}.
    Pong = Data.define

    # Supervisor → init process: all workers serve. The listening sockets come along.
    # @!attribute listeners [Array<Array>] of each the address as it was asked for, and the inode of its file.
    Serving = Data.define(:listeners)

    # Supervisor → init process: a text for the service manager.
    Notify = Data.define(:text)

    # Supervisor → init process: start new code.
    Restart = Data.define

    # Supervisor → init process, and from there to newer ones: what it keeps of `database_connections`. See {Budgets::Kept}.
    Keeps = Data.define(:supervisor, :servers, :rest)

    # Supervisor → init process, and from there to older ones: how many connections to a database server it needs in all.
    Wish = Data.define(:server, :count)

    # Supervisor → init process: it was told to end by a signal of its own, and drains.
    Stopping = Data.define

    # Init process → supervisor: a signal has come. A second TERM or INT means: at once.
    Signaled = Data.define(:signal)

    # Init process → supervisor: a newer generation is being started.
    Starting = Data.define(:generation)

    # Init process → supervisor: a newer generation serves, so this one ends.
    Retire = Data.define

    # Supervisor → worker: finish what runs, then end.
    # @!attribute handover [Boolean] whether siblings go on serving: then idle connections go to them.
    Drain = Data.define(:handover)

    # Supervisor → worker: end at once.
    Stop = Data.define

    # Supervisor → worker: reopen the log files.
    Reopen = Data.define

    # Supervisor → worker: what do your database pools do?
    Show = Data.define

    # Supervisor → worker: are you well?
    Ping = Data.define

    # Supervisor → worker: close so many idle connections to a database server, for which others wait.
    Spare = Data.define(:server, :count)

    TYPES = constants.map { |name| const_get(name) }.to_h { |type| [type.name[/\w+\z/].downcase, type] }.freeze
    private_constant :TYPES

    # @return [String] one line.
    def self.dump(message) = json([TYPES.key(message.class), message.to_h]) << "\n"

    # JSON of strings from outside. Where the locale is C, Ruby takes the bytes of paths and arguments for broken ASCII.
    #
    # @return [String]
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

    # @param line [String]
    # @return [Data] one of those above.
    # @raise [Error] if it is none of them.
    def self.parse(line)
      type, fields = JSON.parse(line)
      TYPES.fetch(type).new(**fields.transform_keys(&:to_sym))
    rescue JSON::ParserError, KeyError, ArgumentError => error
      raise Error, "Not a message: #{line.inspect} (#{error.message})"
    end
  end
end
