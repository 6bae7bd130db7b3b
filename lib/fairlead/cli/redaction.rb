# frozen_string_literal: true

module Fairlead
  class CLI
    # Takes secrets out of a text: values of environment variables, what the app keeps as credentials, and everything
    # that looks like a password.
    class Redaction
      MARK = "[redacted]"
      # Variables whose values everybody may see, and without which paths could not be read.
      HARMLESS = /\A(?:PATH|HOME|PWD|OLDPWD|SHELL|USER|LOGNAME|LANG|TERM|TMPDIR|EDITOR|HOSTNAME|_|
                  LC_.*|GEM_.*|BUNDLE.*|RUBY.*|RACK_ENV|RAILS_ENV)\z/x
      # Shorter values would match words of the text.
      SHORTEST = 6
      USERINFO = %r{(?<=://)[^\s/@"']+@}
      NAMED = /\b(\w*(?:passw(?:or)?d|secret|token|api_?key|access_?key|private_?key|credential|authorization)\w*["']?\s*(?:=>|[=:])\s*)
               (?:"[^"]*"|'[^']*'|(?:Bearer|Basic)\s+\S+|[^\s,;&"']+)/ix
      private_constant :MARK, :HARMLESS, :SHORTEST, :USERINFO, :NAMED

      # @return [Array<String>] passwords of databases and Rails' credentials, once the app is loaded.
      def self.of_app
        databases = defined?(::ActiveRecord::Base) ? ::ActiveRecord::Base.configurations.configurations.map(&:configuration_hash) : []
        application = ::Rails.application if defined?(::Rails.application)
        rails = [application&.secret_key_base, application&.credentials&.config]
        strings([databases.map { |hash| hash.slice(:password, :url) }, rails]).uniq
      rescue StandardError
        [] # an app without credentials, or with a key that does not open them
      end

      def self.strings(value)
        case value
        when Hash then strings(value.values)
        when Array then value.flat_map { |one| strings(one) }
        else [value].compact.map(&:to_s)
        end
      end
      private_class_method :strings

      def initialize(known = [], variables: ENV)
        values = known + variables.to_h.reject { |name, _| HARMLESS.match?(name) }.values
        @values = values.select { |value| value.size >= SHORTEST }.uniq.sort_by { |value| -value.size }
      end

      def apply(text)
        text = @values.inject(text.dup) { |rest, value| rest.gsub(value, MARK) }
        text.gsub(USERINFO, "#{MARK}@").gsub(NAMED) { "#{Regexp.last_match(1)}#{MARK}" }
      end
    end
  end
end
