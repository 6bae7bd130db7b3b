# frozen_string_literal: true

module Fairlead
  class Configuration
    # One row of {TABLE}: an option's name, kind, default, limits and description.
    class Option
      BYTE_UNITS = { "" => 1, "K" => 1 << 10, "M" => 1 << 20, "G" => 1 << 30 }.freeze
      BOOLEANS = { "true" => true, "yes" => true, "on" => true, "1" => true,
                   "false" => false, "no" => false, "off" => false, "0" => false }.freeze
      HOST = /\A(?=.{4,253}\z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\z/i
      private_constant :BYTE_UNITS, :BOOLEANS, :HOST

      # @!attribute [r] name [Symbol] the word in the configuration file and the method of {Configuration}
      # @!attribute [r] kind [Symbol] :integer, :seconds, :fraction, :bytes, :boolean, :path, :url_path, :endpoint, :text, :choice,
      #   :hsts, :hosts, :networks, :paths or :uris
      # @!attribute [r] description [String] shown by --help and the reference page
      # @!attribute [r] variables [Array<String>] environment variables; the first one that is set counts
      # @!attribute [r] short [String, nil] a flag of one letter
      # @!attribute [r] group [Symbol] a key of {GROUPS}
      # @!attribute [r] choices [Array<String>, nil] the values of a choice
      attr_reader :name, :kind, :description, :variables, :short, :group, :choices

      # @param default [Object, Proc] a Proc gets the configuration
      # @param shown [String, nil] the default in words, if it depends on the machine
      # @param within [Range, nil] limits of a number
      # @param auto [Boolean] whether the value auto means the default
      # @param secret [Boolean] whether nobody is shown its value
      def initialize(name, kind, default, description, group:, within: nil, choices: nil, short: nil,
                     variables: [], shown: nil, auto: false, secret: false)
        @name = name
        @kind = kind
        @default = default
        @description = description
        @group = group
        @within = within
        @choices = choices
        @short = short
        @variables = ["FAIRLEAD_#{name.upcase}", *variables]
        @shown = shown
        @auto = auto
        @secret = secret
      end

      def list? = %i[uris networks paths hosts].include?(kind)

      def secret? = @secret

      def boolean? = kind == :boolean

      # @return [String] the long flag without its argument: "--drain-timeout"
      def flag = "--#{name.to_s.tr("_", "-")}"

      # @return [String] the argument in --help: "SECONDS"
      def placeholder
        case kind
        when :integer then "N"
        when :uris then "URI"
        when :endpoint then "URI|PATH"
        when :networks then "NETWORK"
        when :paths then "PATH"
        when :hosts then "HOST"
        when :choice then choices.join("|")
        else kind.to_s.upcase
        end
      end

      def default_value(configuration)
        @default.is_a?(Proc) ? @default.call(configuration) : @default
      end

      def default_in_words
        @shown || case kind
                  when :bytes then bytes_in_words(@default)
                  when :seconds then @default ? "#{format("%g", @default)} s" : "none"
                  when :uris, :networks, :paths, :hosts then @default.empty? ? "none" : @default.join(", ")
                  else @default.nil? ? "none" : @default.to_s
                  end
      end

      # @return [String] the allowed values in words
      def expectation
        case kind
        when :integer then "a whole number#{range_in_words}#{", or auto" if @auto}"
        when :bytes then "a number of bytes#{range_in_words}, like 65536, \"64K\", \"10M\" or \"1G\""
        when :seconds then "a number of seconds#{range_in_words}"
        when :fraction then "a number#{range_in_words}"
        when :boolean then "true or false"
        when :choice then "one of #{choices.join(", ")}"
        when :uris then "an address like http://127.0.0.1:9292 or unix:/path/to.sock"
        when :networks then "networks like 10.0.0.0/8, addresses, private or unix"
        when :hosts then "host names like example.com, without wildcards"
        when :hsts then "a number of seconds, or a header like \"max-age=31536000; includeSubDomains\""
        when :path, :paths then "a file path"
        when :endpoint then "an address like http://127.0.0.1:9394, or a path like /metrics"
        when :url_path then "a path of at most 255 bytes that begins with a slash, like /up"
        else "a string"
        end
      end

      # Converts a value of the file, a flag or a variable, and checks it.
      #
      # @param at [String] the place of the value, for the error message
      # @raise [ConfigurationError]
      def check(value, at)
        checked = convert(value)
        return checked unless checked.nil? && !(value.nil? && @default.nil?)

        raise ConfigurationError, "#{at}: `#{name}` must be #{expectation}, not #{value.inspect}."
      end

      private

      def convert(value)
        return default_value(nil) if @auto && value.to_s == "auto"

        case kind
        when :integer then bounded(whole(value))
        when :bytes then bounded(bytes(value))
        when :seconds, :fraction then bounded(number(value))
        when :boolean then BOOLEANS[value.to_s.downcase]
        when :choice then choice(value)
        when :uris then list(value)
        when :networks then networks(value)
        when :paths then paths(value)
        when :hsts then hsts(value)
        when :hosts then list(value)&.then { |names| names.map(&:downcase) if names.all?(HOST) }
        when :path then value.to_s.empty? ? nil : value.to_s
        when :endpoint then value.to_s.match?(%r{\A(?:(?:http|tcp)://|unix:|/)[!-~]{1,254}\z}) ? value.to_s : nil
        when :url_path then value.to_s.match?(%r{\A/[!-"$->@-~]{0,254}\z}) ? value.to_s : nil
        when :text then value.is_a?(String) || value.is_a?(Symbol) ? value.to_s : nil
        end
      end

      def bounded(number) = number && (@within.nil? || @within.cover?(number)) ? number : nil

      def whole(value)
        case value
        when Integer then value
        when String then Integer(value, 10, exception: false)
        end
      end

      def number(value)
        number = value.is_a?(String) || value.is_a?(Numeric) ? Float(value, exception: false) : nil
        # ActiveSupport's 30.seconds is not a Numeric.
        number ||= value.to_f if defined?(ActiveSupport::Duration) && ActiveSupport::Duration === value
        number if number&.finite?
      end

      def bytes(value)
        return value if value.is_a?(Integer)

        match = /\A(\d+)\s*([KMG]?)(?:i?B)?\z/i.match(value.to_s) or return
        match[1].to_i * BYTE_UNITS.fetch(match[2].upcase)
      end

      # Accepts symbols. If the first choice is off, false means off and true the second choice.
      def choice(value)
        switch = BOOLEANS[value.to_s.downcase] if choices.first == "off"
        value = choices[switch ? 1 : 0] unless switch.nil?
        choices.find { |choice| choice == value.to_s }
      end

      def hsts(value)
        text = whole(value) ? "max-age=#{whole(value)}" : value.to_s
        text if text.match?(/\Amax-age=\d{1,12}(?:; ?(?:includeSubDomains|preload)){0,2}\z/i)
      end

      def networks(value)
        list(value).tap { |words| Network.parse(words.to_a) }
      rescue ArgumentError
        nil
      end

      def list(value)
        list = value.is_a?(Array) ? value.map(&:to_s) : value.to_s.split(/[\s,]+/)
        list.empty? || list.any?(&:empty?) ? nil : list
      end

      # A variable has several, separated by commas.
      def paths(value)
        paths = value.is_a?(Array) ? value.map(&:to_s) : value.to_s.split(",")
        paths unless paths.empty? || paths.any?(&:empty?)
      end

      def range_in_words
        return "" unless @within
        return " from #{@within.begin} to #{@within.end}" if @within.end
        return "" if @within.begin.zero?

        " of #{kind == :bytes ? bytes_in_words(@within.begin) : @within.begin} or more"
      end

      def bytes_in_words(number)
        unit = BYTE_UNITS.keys.reverse.find { |key| number.positive? && (number % BYTE_UNITS[key]).zero? } || ""
        unit.empty? ? "#{number} bytes" : "#{number / BYTE_UNITS[unit]} #{unit}iB"
      end
    end
  end
end
