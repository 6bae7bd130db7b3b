# frozen_string_literal: true

require "fileutils"
require "securerandom"

module Fairlead
  # Where the control sockets of all servers are, so that commands find them.
  module SocketNamespace
    # Linux' abstract namespace: the kernel lists the names of sockets, which need no files. Nothing has to be cleaned up.
    class Abstract
      LIST = "/proc/net/unix"
      LISTED = /@(fairlead-\h+)$/
      private_constant :LIST, :LISTED

      # @return [Array<String>] of all servers.
      # @raise [SystemCallError] if the kernel does not show the list.
      def addresses = File.foreach(LIST).filter_map { |line| line[LISTED, 1] }.uniq.map { |name| "\0#{name}" }

      # @raise [SystemCallError] if no command could find it.
      def new_address
        File.stat(LIST)
        "\0fairlead-#{SecureRandom.hex(8)}"
      end

      def remove(_address) = nil
    end

    # Elsewhere: one folder for each user, to which nobody else may write, with a socket for each server.
    class Folder
      NAME = /\A\h{16}\.sock\z/
      private_constant :NAME

      # @param prefix [String] of all users' folders; short, since the path of a socket is limited.
      def initialize(prefix = "/tmp/.fairlead-control-")
        @prefix = prefix
        @own = "#{prefix}#{Process.euid}"
      end

      # @return [Array<String>] of all servers of this user, or of all users for root.
      def addresses
        folders = Process.euid.zero? ? Dir["#{@prefix}*"] : [@own]
        folders.flat_map { |folder| Dir["#{folder}/*"] }.select { |path| socket?(path) }
      end

      # @raise [SystemCallError] if the folder belongs to another user, or others may write to it.
      def new_address
        FileUtils.mkdir_p(@own, mode: 0o700)
        folder = File.lstat(@own)
        raise Errno::EACCES, @own unless folder.directory? && folder.owned? && (folder.mode & 0o077).zero?

        File.join(@own, "#{SecureRandom.hex(8)}.sock")
      end

      def remove(address)
        File.unlink(address) if socket?(address)
      rescue SystemCallError
        nil
      end

      private

      def socket?(path) = File.basename(path).match?(NAME) && !File.symlink?(path) && File.socket?(path)
    end
  end
end
