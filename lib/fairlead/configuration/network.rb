# frozen_string_literal: true

require "ipaddr"

module Fairlead
  class Configuration
    # The words of the option `trusted_proxies`: networks, addresses, `private` and `unix`.
    module Network
      # Loopback and the networks that are not routed on the internet (RFC 1918, RFC 4193), link-local addresses among them.
      PRIVATE = %w[127.0.0.0/8 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 169.254.0.0/16 ::1/128 fc00::/7 fe80::/10].freeze
      private_constant :PRIVATE

      # @param words [Array<String>]
      # @return [Array<Array(String, Integer)>] each network's address as bytes (none: peers of Unix sockets), and how many of its bits
      #   count
      # @raise [ArgumentError] naming the word that is none
      def self.parse(words)
        words.flat_map { |word| word == "private" ? PRIVATE : [word] }.map { |word| parse_one(word) }
      end

      def self.parse_one(word)
        return ["", 0] if word == "unix"

        network = IPAddr.new(word)
        [network.hton, network.prefix]
      rescue IPAddr::Error
        raise ArgumentError, word
      end
      private_class_method :parse_one
    end
  end
end
