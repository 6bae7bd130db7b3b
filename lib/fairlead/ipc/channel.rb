# frozen_string_literal: true

require "socket"

module Fairlead
  # One end of a control socket, over which {Messages} and descriptors go. The end of the file says that the peer has gone.
  class Channel
    # Bytes of a failure's description: a socket takes so many at once in any case.
    DESCRIPTION_LIMIT = 50_000
    private_constant :DESCRIPTION_LIMIT

    # @return [Array(Channel, Channel)] the parent's end and the child's.
    def self.pair = UNIXSocket.pair.map { |socket| new(socket) }

    # @return [UNIXSocket] readable when a message, or the end, has come.
    attr_reader :io

    def initialize(io)
      @io = io
      @buffer = +""
      @rest = "" # of a message of which the socket took a part
      @ios = []
      @lock = Thread::Mutex.new
    end

    # Never waits for the peer. May be called from any thread.
    #
    # @param ios [Array<IO>] the peer gets copies of them.
    # @return [Boolean] false if the peer has gone, or does not read.
    def post(message, ios = [])
      message = message.with(description: message.description[0, DESCRIPTION_LIMIT]) if message.is_a?(Messages::Failed)
      line = Messages.dump(message)
      rights = ios.empty? ? [] : [Socket::AncillaryData.unix_rights(*ios)]
      @lock.synchronize do
        @rest = @rest.byteslice(@io.sendmsg_nonblock(@rest)..) until @rest.empty?
        @rest = line.byteslice(@io.sendmsg_nonblock(line, 0, nil, *rights)..)
      end
      true
    rescue IO::WaitWritable, SystemCallError, IOError
      false
    end

    # Never waits.
    #
    # @return [Array(Array<Data>, Boolean)] the messages that have come, and whether the peer has gone.
    def receive
      loop do
        chunk, _, _, *controls = @io.recvmsg_nonblock(65_536, scm_rights: true, exception: false)
        return [take_messages, false] if chunk == :wait_readable
        return [take_messages, true] if chunk.nil? || chunk.empty?

        @ios.concat(controls.flat_map { |control| control.unix_rights || [] })
        @buffer << chunk
      end
    rescue SystemCallError, IOError
      [take_messages, true]
    end

    # @return [Array<IO>] copies of what the peer has sent, each once.
    def take_ios = @ios.slice!(0..)

    def close = @io.close

    private

    def take_messages
      messages = []
      while (line = @buffer.slice!(/\A.*\n/))
        begin
          messages << Messages.parse(line)
        rescue Error => error
          Log.say error.message
        end
      end
      messages
    end
  end
end
