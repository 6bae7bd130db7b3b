# frozen_string_literal: true

module Fairlead
  # Ruby's compiler, for apps that do not turn it on themselves.
  module Yjit
    # To be called once the app is loaded: what runs only once is not worth compiling.
    #
    # @param configuration [Configuration]
    def self.enable(configuration)
      return unless configuration.yjit && defined?(RubyVM::YJIT) && !RubyVM::YJIT.enabled? && !defined?(::Rails::Application)

      RubyVM::YJIT.enable
    end
  end
end
