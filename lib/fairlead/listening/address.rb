# frozen_string_literal: true

module Fairlead
  class Listener
    # A parsed address: a host and a port, or the path of a Unix socket with its mode. A path that begins with @ is a name in
    # Linux' abstract namespace, without a file.
    class Address
      attr_reader :text, :host, :port, :path, :mode

      EXPECTED = "An address looks like http://127.0.0.1:9292, http://[::1]:9292 or unix:/path/to.sock."

      # @raise [ConfigurationError]
      def self.parse(text) = new(text)

      def initialize(text)
        @text = text.to_s
        case @text
        when %r{\Aunix:(?://)?(?<path>[^?]+)(?:\?mode=(?<mode>[0-7]{3,4}))?\z} then read_unix(Regexp.last_match)
        when %r{\A(?:http|tcp)://(?:\[(?<six>[\w:.%]+)\]|(?<host>[^\[\]/:?#]+))(?::(?<port>\d+))?/?\z}
          read_tcp(Regexp.last_match)
        when %r{\A(https|ssl)://} then raise ConfigurationError, no_tls
        else raise ConfigurationError, "#{@text.inspect} is not an address. #{EXPECTED}"
        end
      end

      def to_s = text

      def abstract? = path.start_with?("@")

      def unix = Addrinfo.unix(path.sub(/\A@/, "\0"))

      private

      def read_unix(match)
        @path = match[:path]
        @path = File.expand_path(path) unless abstract?
        @mode = match[:mode]&.to_i(8)
        raise ConfigurationError, "#{text}: only Linux has names without a file. Bind a path." if abstract? && !Platform::LINUX
        raise ConfigurationError, "#{text}: a name without a file has no permissions. Remove ?mode=." if abstract? && mode
      end

      def read_tcp(match)
        @host = match[:six] || match[:host]
        @port = (match[:port] || 80).to_i
        raise ConfigurationError, "#{text}: a port is a number from 0 to 65535." if port > 65_535
      end

      def no_tls
        "#{text}: Fairlead does not serve https yet. Bind http://… and put a proxy that does TLS in front."
      end
    end
  end
end
