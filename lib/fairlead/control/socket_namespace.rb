# frozen_string_literal: true

require "fileutils"
require "securerandom"

module Fairlead
  class Inquiry
    # Linux' abstract namespace: sockets without files, whose names the kernel lists. Nothing has to be cleaned up.
    class AbstractNames
      LIST = "/proc/net/unix"
      # What the kernel lists of ours.
      LISTED = /@(fairlead-\h+)$/
      private_constant :LIST, :LISTED

      # @return [Array<String>] where somebody may answer.
      # @raise [SystemCallError] if the kernel does not say.
      def addresses = File.foreach(LIST).filter_map { |line| line[LISTED, 1] }.uniq.map { |name| "\0#{name}" }

      # @return [String]
      # @raise [SystemCallError] if nobody would find it.
      def new_address
        File.stat(LIST)
        "\0fairlead-#{SecureRandom.hex(8)}"
      end

      def remove(address) = nil
    end

    # Elsewhere a folder of the user's that nobody else may write to, with a socket for each server.
    class Folder
      NAME = /\A\h{16}\.sock\z/
      private_constant :NAME

      # @param prefix [String] of the folders of all users; short, as the path of a socket has to be.
      def initialize(prefix = "/tmp/.fairlead-inquiry-")
        @prefix = prefix
        @own = "#{prefix}#{Process.euid}"
      end

      # @return [Array<String>] where somebody may answer.
      def addresses
        folders = Process.euid.zero? ? Dir["#{@prefix}*"] : [@own]
        folders.flat_map { |folder| Dir["#{folder}/*"] }.select { |path| ours?(path) }
      end

      # @return [String]
      # @raise [SystemCallError] if the folder is somebody else's.
      def new_address
        FileUtils.mkdir_p(@own, mode: 0o700)
        folder = File.lstat(@own)
        raise Errno::EACCES, @own unless folder.directory? && folder.owned? && (folder.mode & 0o077).zero?

        File.join(@own, "#{SecureRandom.hex(8)}.sock")
      end

      def remove(address)
        File.unlink(address) if ours?(address)
      rescue SystemCallError
        nil
      end

      private

      def ours?(path) = File.basename(path).match?(NAME) && !File.symlink?(path) && File.socket?(path)
    end
  end
end
