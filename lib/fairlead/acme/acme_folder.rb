# frozen_string_literal: true

require "fileutils"
require "uri"

module Fairlead
  # Where the certificate of the option `certificates`, its key and the account are kept: a folder for each authority, which only this
  # user may read. Files are written aside and renamed, so that readers find all of one or of the other.
  class ACMEFolder
    TOKEN = /\A[A-Za-z0-9_-]{1,255}\z/
    # Clients distrust the placeholder however long it lasts.
    DAYS = 90
    # Bytes, more than a key and the certificates of a chain.
    ROOM = 32_768
    private_constant :TOKEN, :DAYS, :ROOM

    # @return [ACMEFolder, nil] nil: the option is not set.
    def self.for(configuration)
      return if configuration.certificates.empty?

      new(File.join(configuration.certificates_folder, host_of(configuration)), configuration.certificates)
    end

    def self.host_of(configuration)
      URI.parse(configuration.acme_directory).host or raise URI::InvalidURIError
    rescue URI::InvalidURIError
      raise ConfigurationError, "#{configuration.source(:acme_directory)}: `acme_directory` must be a URL, not " \
                                "#{configuration.acme_directory.inspect}."
    end
    private_class_method :host_of

    # @param path [String]
    # @param names [Array<String>] of hosts.
    def initialize(path, names)
      require "openssl" # here, since servers without the option do without it
      @path = path
      @names = names
    end

    attr_reader :names

    # @return [String] the file with the key and the certificate.
    def file = File.join(@path, "#{@names.first}.pem")

    # Makes the folder, and a certificate by nobody until there is one, so that the server can start.
    #
    # @raise [SystemCallError]
    def prepare
      FileUtils.mkdir_p(File.join(@path, "tokens"))
      FileUtils.chmod(0o700, [@path, File.join(@path, "tokens")])
      return if certificate

      key, certificate = placeholder
      store(key, certificate.to_pem)
      record_problem("The certificate for #{@names.join(", ")} is being obtained: clients see a self-signed one until then.")
    end

    # @return [OpenSSL::X509::Certificate, nil] what {#file} has.
    def certificate
      OpenSSL::X509::Certificate.new(File.read(file))
    rescue Errno::ENOENT, OpenSSL::X509::CertificateError
      nil
    end

    # @return [Boolean] whether an authority has issued it, for these names.
    def obtained?
      now = certificate or return false
      now.issuer != now.subject && names_all?(now)
    end

    # An authority issues few certificates a week for the same names: one that finds no room here is lost.
    #
    # @raise [SystemCallError]
    def check_room
      path = File.join(@path, "room")
      write(path, "\0" * ROOM)
    ensure
      FileUtils.rm_f(path)
    end

    # @param key [OpenSSL::PKey]
    # @param chain [String] the certificate and those of its issuers, in PEM.
    # @raise [Error] it is no certificate for this key and these names: {#file} stays as it is.
    def store(key, chain)
      raise Error, "the authority has sent no certificate for these names and the server's key" unless certifies?(chain.to_s, key)

      write(file, key.private_to_pem + chain)
    end

    # @return [OpenSSL::PKey::EC] of the account.
    def account_key
      path = File.join(@path, "account.pem")
      return OpenSSL::PKey.read(File.read(path)) if File.exist?(path)

      new_key.tap { |key| write(path, key.private_to_pem) }
    end

    def new_key = OpenSSL::PKey::EC.generate("prime256v1")

    # @return [String, nil] what is wrong.
    def problem
      File.read(problem_file)
    rescue Errno::ENOENT
      nil
    end

    # @param problem [String, nil]
    def record_problem(problem) = problem ? write(problem_file, problem) : FileUtils.rm_f(problem_file)

    # @return [String, nil] the answer to a challenge.
    def answer(token)
      File.read(token_file(token)) if TOKEN.match?(token)
    rescue SystemCallError
      nil
    end

    # @raise [ArgumentError] the token is none.
    def publish(token, answer)
      raise ArgumentError, "#{token.inspect} is no token of a challenge" unless TOKEN.match?(token)

      write(token_file(token), answer)
    end

    def withdraw(token) = FileUtils.rm_f(token_file(token))

    # Orders of two generations of a server come one after the other.
    def lock
      File.open(File.join(@path, "lock"), File::RDWR | File::CREAT, 0o600) do |file|
        file.flock(File::LOCK_EX)
        yield
      end
    end

    private

    def problem_file = File.join(@path, "#{@names.first}.problem")

    def token_file(token) = File.join(@path, "tokens", token)

    def write(path, text)
      aside = "#{path}.#{Process.pid}.new"
      File.open(aside, File::WRONLY | File::CREAT | File::TRUNC, 0o600) do |file|
        file.write(text)
        file.fsync
      end
      File.rename(aside, path)
    rescue SystemCallError
      FileUtils.rm_f(aside)
      raise
    end

    def certifies?(chain, key)
      certificate = OpenSSL::X509::Certificate.load(chain).first
      certificate.check_private_key(key) && names_all?(certificate)
    rescue OpenSSL::X509::CertificateError
      false
    end

    def names_all?(certificate)
      listed = certificate.extensions.find { |extension| extension.oid == "subjectAltName" }&.value.to_s.scan(/DNS:([^,\s]+)/).flatten
      (@names - listed).empty?
    end

    def placeholder
      key = new_key
      certificate = OpenSSL::X509::Certificate.new
      certificate.version = 2
      certificate.serial = OpenSSL::BN.rand(64)
      certificate.subject = certificate.issuer = OpenSSL::X509::Name.new([["CN", @names.first[0, 64]]])
      certificate.not_before = Time.now - 60
      certificate.not_after = Time.now + (DAYS * 86_400)
      certificate.public_key = key
      names = @names.map { |name| "DNS:#{name}" }.join(",")
      certificate.add_extension(OpenSSL::X509::ExtensionFactory.new.create_extension("subjectAltName", names))
      [key, certificate.sign(key, "SHA256")]
    end
  end
end
