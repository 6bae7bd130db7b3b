# frozen_string_literal: true

require "json"
require "socket"
require_relative "../parts"

module Fairlead
  # What supervisor and worker say to each other over the control socket of the worker: one line of JSON each.
  #
  # The end of the file is a message too: the worker has ended, or the supervisor has.
  module Messages
    # Worker → supervisor: it serves.
    Ready = Data.define

    # Worker → supervisor: it could not start, and ends. The description is complete: what, file, line, what
    # to do.
    Failed = Data.define(:description)

    # Worker → supervisor: it is stuck, requests wait, and no sibling can take them.
    Relief = Data.define

    # Worker → supervisor: requests wait that hold Ruby's lock, and belong in a lane worker.
    Lane = Data.define

    # Worker → supervisor: a reactor stayed away for long.
    # @!attribute stall [Hash] the fields of a Stall.
    Stalled = Data.define(:stall)

    # Worker → supervisor: a request keeps one of its reactors away, for longer than `stuck_timeout`.
    # @!attribute kind [String] "blocked", "stuck" (it sleeps with Ruby's lock) or "computing".
    # @!attribute request [String] "GET /path", with what could not stand in a URL as "%0a"; empty: it is none.
    Stuck = Data.define(:kind, :request)

    # Worker → supervisor: a stall goes on, and no Ruby runs beside it that could say more. The watch thread writes this,
    # and Stuck (ext/fairlead/core/watch/report.c).
    # @!attribute number [Integer] of the reactor
    # @!attribute began [Integer] on the core's clock
    # @!attribute seconds [Float] for how long by now
    # @!attribute kind [String] "stuck" or "computing"
    # @!attribute request [String] as above
    # @!attribute standby [Boolean] whether the lead went to a standby reactor
    # @!attribute relief [Boolean] whether a relief worker was asked for
    # @!attribute handed [Integer] how many requests went to other workers
    # @!attribute sibling [Integer] the slot of the last of them; -1: none
    Lasting = Data.define(:number, :began, :seconds, :kind, :request, :standby, :relief, :handed, :sibling)

    # Worker → supervisor: what {Show} has asked for.
    # @!attribute pools [Array<Hash>] see {PoolReports.collect}.
    Shown = Data.define(:pools)

    # Worker → supervisor: whoever drives its loop has heard {Ping}.
    Pong = Data.define

    # Supervisor → its parent process: all workers serve. The listening sockets come along.
    # @!attribute listeners [Array<Array>] for each, as which address it was asked for, and the inode of its file.
    Serves = Data.define(:listeners)

    # Supervisor → its parent process: what a service manager should be told.
    Notify = Data.define(:text)

    # Supervisor → its parent process: new code shall be started.
    Renew = Data.define

    # Supervisor → its parent process, and from there to those of newer code: what it keeps of `database_connections`. See
    # {Budgets::Kept}.
    Keeps = Data.define(:supervisor, :servers, :rest)

    # Supervisor → its parent process, and from there to those of older code: so many connections to a database server are
    # needed in all.
    Wish = Data.define(:server, :count)

    # Parent process → supervisor: new code serves, and this one ends.
    Leave = Data.define

    # Parent process → supervisor, and the one that serves → its parent: it has been told to end, as by TERM. Said again: at
    # once.
    Dismiss = Data.define

    # Supervisor → worker: finish what runs, then end.
    # @!attribute handover [Boolean] whether siblings go on serving: then idle connections go to them.
    Drain = Data.define(:handover)

    # Supervisor → worker: end at once.
    Stop = Data.define

    # Supervisor → worker, and parent process → supervisor: reopen the log files.
    Reopen = Data.define

    # Supervisor → worker: what do your database pools do?
    Show = Data.define

    # Supervisor → worker: are you well?
    Ping = Data.define

    # Supervisor → worker: close so many connections to a database server that nobody uses; others wait for them.
    Spare = Data.define(:server, :count)

    TYPES = [Ready, Failed, Relief, Lane, Stalled, Stuck, Lasting, Shown, Serves, Notify, Renew, Keeps, Wish, Leave,
             Dismiss, Drain, Stop, Reopen, Show, Spare, Ping, Pong]
            .to_h { |type| [type.name[/\w+\z/].downcase, type] }.freeze
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

    # One end of a control socket.
    class Channel
      # More than any message is: a peer must not fill our memory.
      LIMIT = 1 << 20

      # @return [Array(Channel, Channel)] the supervisor's end and the worker's.
      def self.pair = UNIXSocket.pair.map { |socket| new(socket) }

      # @return [UNIXSocket] readable when a message, or the end, has come.
      attr_reader :io

      def initialize(io)
        @io = io
        @buffer = +""
        @ios = []
      end

      # The longest description that is sent: what a socket takes at once, in any case.
      DESCRIPTION = 50_000

      # @param ios [Array<IO>] what the peer shall have copies of.
      # @return [Boolean] false if the peer has gone, or does not read. Never waits.
      def tell(message, ios = [])
        message = Failed.new(message.description[0, DESCRIPTION]) if message.is_a?(Failed)
        line = Messages.dump(message)
        rights = ios.empty? ? [] : [Socket::AncillaryData.unix_rights(*ios)]
        @io.sendmsg_nonblock(line, 0, nil, *rights) == line.bytesize
      rescue IO::WaitWritable, SystemCallError, IOError
        false
      end

      # @return [Array(Array<Messages>, Boolean)] the messages that have come, and whether the peer has gone.
      #   Never waits.
      def receive
        loop do
          chunk, _, _, *controls = @io.recvmsg_nonblock(65_536, scm_rights: true, exception: false)
          return [take, false] if chunk == :wait_readable
          return [take, true] if chunk.nil? || chunk.empty? || @buffer.bytesize > LIMIT

          @ios.concat(controls.flat_map { |control| control.unix_rights || [] })

          @buffer << chunk
        end
      rescue SystemCallError, IOError
        [take, true]
      end

      # @return [Array<IO>] copies of what the peer has sent, each once.
      def take_ios = @ios.slice!(0..)

      def close = @io.close

      private

      def take
        lines = []
        while (line = @buffer.slice!(/\A.*\n/))
          lines << Messages.parse(line)
        end
        lines
      rescue Error => error
        Log.say error.message
        lines
      end
    end
  end
end
