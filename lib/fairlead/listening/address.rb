# frozen_string_literal: true

module Fairlead
  class Listener
    # A parsed address: a host and a port, or the path of a Unix socket, and options behind a question mark. A path that begins with
    # @ is a name in Linux' abstract namespace, without a file.
    class Address
      attr_reader :text, :scheme, :host, :port, :path, :mode

      # @return [Boolean] whether connections begin with a PROXY header
      def proxied? = @proxied

      EXPECTED = "An address looks like http://127.0.0.1:9292, https://[::1]:9292 or unix:/path/to.sock."

      # @raise [ConfigurationError]
      def self.parse(text) = new(text)

      def initialize(text)
        @text = text.to_s
        @scheme = "http"
        address, query = @text.split("?", 2)
        options = read_options(query)
        @proxied = options.delete("proxy_protocol") == "1"
        case address
        when %r{\Aunix:(?://)?(?<path>.+)\z}m then read_unix(Regexp.last_match[:path], options.delete("mode"))
        when %r{\A(?<scheme>https?|tcp|ssl)://(?:\[(?<six>[\w:.%]+)\]|(?<host>[^\[\]/:?#]+))(?::(?<port>\d+))?/?\z}
          read_tcp(Regexp.last_match)
        else raise ConfigurationError, "#{@text.inspect} is not an address. #{EXPECTED}"
        end
        raise ConfigurationError, "#{@text}: there is no option #{options.keys.first} here." unless options.empty?
      end

      def to_s = text

      # @return [Array] what two addresses of one socket have in common; its last is 0 for a free port.
      def place = path ? [path] : [host, port]

      def https? = scheme == "https"

      def abstract? = path.start_with?("@")

      def unix = Addrinfo.unix(path.sub(/\A@/, "\0"))

      private

      VALUES = { "mode" => /\A[0-7]{3,4}\z/, "proxy_protocol" => /\A[01]\z/ }.freeze
      private_constant :VALUES

      def read_options(query)
        query.to_s.split("&").to_h do |option|
          name, value = option.split("=", 2)
          next [name, value] if VALUES[name]&.match?(value.to_s)

          raise ConfigurationError, "#{text}: #{option.inspect} is no option of an address. There are ?proxy_protocol=1, and for a " \
                                    "Unix socket ?mode=0660."
        end
      end

      def read_unix(path, mode)
        @path = path
        @path = File.expand_path(path) unless abstract?
        @mode = mode&.to_i(8)
        raise ConfigurationError, "#{text}: only Linux has names without a file. Bind a path." if abstract? && !Platform::LINUX
        raise ConfigurationError, "#{text}: a name without a file has no permissions. Remove ?mode=." if abstract? && mode
      end

      def read_tcp(match)
        @host = match[:six] || match[:host]
        @scheme = "https" if %w[https ssl].include?(match[:scheme])
        @port = (match[:port] || (https? ? 443 : 80)).to_i
        raise ConfigurationError, "#{text}: a port is a number from 0 to 65535." if port > 65_535
      end
    end
  end
end
