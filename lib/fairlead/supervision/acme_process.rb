# frozen_string_literal: true

module Fairlead
  # Gets and renews the certificate of the option `certificates`, once the server serves: workers answer the authority's challenges, and
  # use the new file by themselves.
  class ACMEProcess < SideProcess
    GEM = "acme-client"
    # Loaded now: a deployment may remove the files before the process is forked again.
    NEEDED_LATER = [ACMEChallenges, ACMEFolder, ACMEOrder, ACMERenewal].freeze
    private_constant :GEM, :NEEDED_LATER

    # @return [ACMEProcess, nil] nil if the option is not set.
    # @raise [ConfigurationError] if the gem is missing.
    def self.for(configuration, once: false)
      folder = ACMEFolder.for(configuration) or return
      return new(configuration, folder, once:) if Gem::Specification.find_all_by_name(GEM).any?

      raise ConfigurationError, missing(configuration)
    end

    def self.missing(configuration)
      "#{configuration.source(:certificates)}: `certificates` needs the gem #{GEM}. Add it to the Gemfile (bundle add #{GEM} --require " \
        "false), or remove the line."
    end

    def initialize(configuration, folder, once: false)
      super(configuration, once:)
      @folder = folder
    end

    private

    def name = "The process for certificates"

    def title = "certificates"

    def call
      await_opening # workers answer challenges from then on
      load_gem
      renewal = ACMERenewal.new(@folder) { ACMEOrder.new(@folder, @configuration.acme_directory, @configuration.certificates_email) }
      loop { sleep [renewal.update, 1].max }
    end

    # Bundler may leave out what is installed.
    def load_gem
      require GEM
    rescue LoadError
      raise ConfigurationError, self.class.missing(@configuration)
    end

    def quit = Process.exit!(0)
  end
end
