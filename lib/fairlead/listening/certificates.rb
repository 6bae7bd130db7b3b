# frozen_string_literal: true

module Fairlead
  # The certificates of https:// addresses: which files they are, and what the core has loaded of them.
  class Certificates
    INSTALL = "Install OpenSSL 3 with its headers (Debian: apt-get install libssl-dev; Alpine: apk add openssl-dev; Fedora: dnf install " \
              "openssl-devel; macOS: brew install openssl@3), then run `gem pristine fairlead`."
    LOOK_EVERY = 1 # seconds
    # Seconds until session tickets are sealed with a new key. The core accepts two older keys: clients keep a ticket for two hours.
    ROTATE_EVERY = 12 * 3600
    private_constant :INSTALL, :LOOK_EVERY, :ROTATE_EVERY

    # @param memory [IO, nil] {#memory} of older code: its clients resume their sessions.
    # @return [Certificates, nil] nil: no listener needs any. The listeners get them.
    # @raise [ConfigurationError]
    def self.load(configuration, listeners, memory: nil)
      encrypted = listeners.select(&:https?)
      if encrypted.empty?
        return unless (option = %i[client_ca certificates].find { |name| ![nil, []].include?(configuration.public_send(name)) })

        raise ConfigurationError, "#{configuration.source(option)}: `#{option}` needs an https:// address. Set `bind \"https://…\"`, or " \
                                  "remove it."
      end

      certificates = new(configuration, memory:, local: LocalhostCertificate.for?(encrypted))
      encrypted.each { |listener| listener.certificates = certificates }
      certificates
    end

    # @return [TLS] the core's side.
    attr_reader :tls

    # @return [IO, nil] where the keys of session tickets lie, for newer code; nil: it begins with new ones.
    def memory
      number = @tls.memory or return
      @memory ||= IO.for_fd(number, autoclose: false)
    end

    # @return [Boolean] whether clients are asked for certificates.
    def clients? = !@authorities.nil?

    # @param local [Boolean] whether all addresses are https://localhost.
    # @raise [ConfigurationError]
    def initialize(configuration, memory: nil, local: false)
      @configuration = configuration
      refuse("Fairlead was built without OpenSSL. #{INSTALL}") unless TLS::AVAILABLE
      @lock = Thread::Mutex.new
      @folder = ACMEFolder.for(configuration)
      @folder&.prepare
      @files = local && configuration.certificate.empty? && @folder.nil? ? [local_files] : files
      @authorities = configuration.client_ca && readable(:client_ca, configuration.client_ca)
      @loaded = @seen = stamps
      memory&.autoclose = false # it belongs to the core
      @tls = TLS.new(memory&.fileno)
      load
    rescue TLS::Error => error
      raise ConfigurationError, error.message
    rescue SystemCallError => error
      raise ConfigurationError, "#{configuration.source(:certificates_folder)}: `certificates_folder` cannot be written: #{error.message}."
    end

    # Loads files that have changed since the server's start, for a process that begins to serve.
    def refresh
      @lock.synchronize do
        @seen = stamps
        load_seen(aloud: true)
      end
    end

    # Loads files that have changed since, and not since the last call: both may be written one after the other. What cannot be used
    # leaves all as it was.
    #
    # @param aloud [Boolean] whether the log says what cannot be used.
    def renew(aloud: true)
      @lock.synchronize do
        before = @seen
        @seen = stamps
        load_seen(aloud:) if @seen == before
      end
    end

    # In the supervisor, which serves nothing and so does not watch the files: the workers say in the log what this only reports.
    #
    # @return [Array<Hash>] of each certificate in use `name:`, `file:`, `expires_at:` (seconds since 1970), `problem:`, why newer files
    #   could not be used, or nil; `renewal:`, nil if Fairlead does not renew it, else why it could not, or "".
    def report
      renew(aloud: false)
      @tls.certificates.zip(@files).map do |(name, expires_at), (file)|
        { name:, file:, expires_at:, problem: @problem, renewal: (@folder.problem.to_s if @folder&.file == file) }
      end
    end

    # @return [Thread] renews them, within some seconds, and the keys of tickets, until it is killed.
    def watch
      Thread.new { loop { sleep(LOOK_EVERY).then { maintain } } }.tap { |thread| thread.name = "fairlead certificates" }
    end

    private

    def maintain
      renew
      @tls.rotate_tickets(ROTATE_EVERY)
    end

    def load = @tls.load(@files, @authorities, @configuration.client_certificate == "required")

    def load_seen(aloud:)
      return if @seen == @loaded

      @loaded = @seen
      load
      @problem = nil
    rescue TLS::Error => error
      @problem = error.message
      Log.say "The certificate before it stays in use. #{@problem}" if aloud
    end

    # @return [Array<Array(String, String)>] the first pair is for clients that name no host, or an unknown one.
    def files
      certificates, keys = @configuration.certificate, @configuration.certificate_key
      if certificates.empty? && @folder.nil?
        refuse("there is no certificate. Set `certificate` and `certificate_key` to its files, or `certificates` to the names of hosts.")
      end
      unless certificates.size == keys.size
        raise ConfigurationError, "#{@configuration.source(:certificate)}: each `certificate` needs its key: set `certificate_key` to " \
                                  "the file, as often and in the same order (#{certificates.size} and #{keys.size})."
      end

      pairs = certificates.each { |path| readable(:certificate, path) }.zip(keys.each { |path| readable(:certificate_key, path) })
      @folder ? pairs << [@folder.file, @folder.file] : pairs
    end

    def local_files
      LocalhostCertificate.files
    rescue LoadError
      refuse("there is no certificate for https://localhost. Add the gem localhost, which makes one, to the Gemfile (bundle add " \
             "localhost --group development), or set `certificate` and `certificate_key`.")
    end

    def stamps
      [*@files.flatten, *@authorities].map { |path| File.stat(path).then { |file| [file.mtime, file.ino, file.size] } rescue nil }
    end

    def readable(option, path)
      File.open(path) { path }
    rescue SystemCallError => error
      raise ConfigurationError, "#{@configuration.source(option)}: `#{option}` #{path} cannot be read: #{error.message[/\A[^@]+/].strip}."
    end

    def refuse(why)
      raise ConfigurationError, "#{@configuration.source(:bind)}: `bind` wants https://, but #{why}"
    end
  end
end
