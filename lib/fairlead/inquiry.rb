# frozen_string_literal: true

require "json"
require "securerandom"
require "socket"
require_relative "parts"

module Fairlead
  # How another command of the same user asks a running server: over a Unix socket without a file, in Linux' abstract
  # namespace, whose names the kernel lists. Nothing has to be configured, found or cleaned up.
  class Inquiry
    PREFIX = "\0fairlead-"
    # What the kernel lists of it.
    LISTED = /@(fairlead-\h+)$/
    LIST = "/proc/net/unix"
    # Seconds that a server may take to answer.
    PATIENCE = 2
    private_constant :PREFIX, :LISTED, :LIST, :PATIENCE

    # @return [Array<Hash>] what each server of this user, or of all for root, says of itself.
    def self.servers
      names = File.foreach(LIST).filter_map { |line| line[LISTED, 1] }.uniq
      names.filter_map { |name| ask(name) }
    rescue SystemCallError
      []
    end

    def self.ask(name)
      socket = Socket.new(:UNIX, :STREAM)
      socket.connect(Socket.sockaddr_un("\0#{name}"))
      # Anybody may take such a name.
      return unless [socket.getpeereid.first, 0].include?(Process.euid)

      JSON.parse(read(socket), symbolize_names: true)
    rescue SystemCallError, JSON::ParserError
      nil
    ensure
      socket&.close
    end

    # All that comes until its end, or until nothing comes any more.
    def self.read(socket)
      text = +""
      text << socket.readpartial(65_536) while socket.wait_readable(PATIENCE)
      text
    rescue EOFError
      text
    end
    private_class_method :ask, :read

    # @return [Socket] readable when somebody asks.
    attr_reader :io

    # @yieldreturn [Hash] the answer
    def initialize(&answer)
      @answer = answer
      @io = Socket.new(:UNIX, :STREAM)
      @io.bind(Socket.sockaddr_un("#{PREFIX}#{SecureRandom.hex(8)}"))
      @io.listen(8)
    end

    # @return [Inquiry, nil] nil where there are no such sockets: then nobody can ask.
    def self.open(&)
      new(&) if File.exist?(LIST)
    rescue SystemCallError
      nil
    end

    # Answers who asks now, and waits for nobody.
    def attend
      loop do
        client, = @io.accept_nonblock(exception: false)
        break unless client.is_a?(Socket)

        answer(client)
      end
    rescue SystemCallError
      nil
    end

    def close = @io.close

    private

    # The name is known to all who are on this machine; the answer is for this user and root. It has to fit into what the
    # kernel takes at once, some 200 KB.
    def answer(client)
      user, = client.getpeereid
      return unless [0, Process.euid].include?(user)

      text = JSON.generate(@answer.call)
      client.setsockopt(:SOCKET, :SNDBUF, text.bytesize + 4096)
      client.write_nonblock(text)
    rescue IO::WaitWritable, SystemCallError
      nil
    ensure
      client.close
    end
  end
end
