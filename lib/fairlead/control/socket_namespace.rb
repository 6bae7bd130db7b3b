# frozen_string_literal: true

require "digest"
require "fileutils"
require "securerandom"

module Fairlead
  # Where the control sockets of all servers are, so that commands find them. If the environment variable FAIRLEAD_CONTROL is set, whatever
  # its value is, only those of servers that were started with the same value.
  module SocketNamespace
    # @return [String] the value; empty where there is none.
    def self.group = ENV.fetch("FAIRLEAD_CONTROL", "")

    # @return [String] the beginning of the names of a group's sockets.
    def self.prefix(group) = group.empty? ? "fairlead-" : "fairlead-#{Digest::SHA256.hexdigest(group)[0, 8]}-"

    # Linux' abstract namespace: the kernel lists the names of sockets, which need no files. Nothing has to be cleaned up.
    class Abstract
      LIST = "/proc/net/unix"
      private_constant :LIST

      def initialize(group = SocketNamespace.group)
        @prefix = SocketNamespace.prefix(group)
        @listed = /@(#{@prefix}\h+)$/
      end

      # @return [Array<String>] of all servers.
      # @raise [SystemCallError] if the kernel does not show the list.
      def addresses = File.foreach(LIST).filter_map { |line| line[@listed, 1] }.uniq.map { |name| "\0#{name}" }

      # @raise [SystemCallError] if no command could find it.
      def new_address
        File.stat(LIST)
        "\0#{@prefix}#{SecureRandom.hex(8)}"
      end

      def remove(_address) = nil
    end

    # Elsewhere: one folder for each user, to which nobody else may write, with a socket for each server.
    class Folder
      # @param place [String] where all users' folders are, and how their names begin; short, since the path of a socket is limited.
      def initialize(group = SocketNamespace.group, place: "/tmp/.fairlead-control-")
        @place = place
        @own = "#{place}#{Process.euid}"
        @prefix = SocketNamespace.prefix(group)
      end

      # @return [Array<String>] of all servers of this user, or of all users for root.
      def addresses
        folders = Process.euid.zero? ? Dir["#{@place}*"] : [@own]
        folders.flat_map { |folder| Dir["#{folder}/*"] }.select { |path| socket?(path) }
      end

      # @raise [SystemCallError] if the folder belongs to another user, or others may write to it.
      def new_address
        FileUtils.mkdir_p(@own, mode: 0o700)
        folder = File.lstat(@own)
        raise Errno::EACCES, @own unless folder.directory? && folder.owned? && (folder.mode & 0o077).zero?

        File.join(@own, "#{@prefix}#{SecureRandom.hex(8)}.sock")
      end

      def remove(address)
        File.unlink(address) if socket?(address)
      rescue SystemCallError
        nil
      end

      private

      def socket?(path) = File.basename(path).match?(/\A#{@prefix}\h{16}\.sock\z/) && !File.symlink?(path) && File.socket?(path)
    end
  end
end
