# frozen_string_literal: true

module Bench
  # What a server is asked to serve: an app, on a port, with some workers; over TLS with the certificate of tls, the files of the folder
  # public, compressed, and metrics on another port, if there are such. A proxy reaches its server at the port backend.
  Site = Data.define(:app, :port, :backend, :workers, :folder, :metrics, :tls, :public, :compress) do
    def initialize(metrics: nil, tls: nil, public: nil, compress: nil, **) = super

    def url = "#{tls ? "https" : "http"}://127.0.0.1:#{port}"

    # A file of this run alone, for a server that is configured by one.
    def write(name, text)
      path = File.join(folder, name)
      File.write(path, text)
      path
    end
  end

  # How one server is started at its best. Each has a file in servers/, which says why it is set so.
  class Server
    @all = {}

    class << self
      attr_reader :all

      def inherited(subclass)
        super
        Server.all[subclass.name.split("::").last.downcase] = subclass
      end

      # @param label [String] a server's name, and after a colon what it is set to: "puma", "puma:60".
      def for(label)
        name, setting = label.split(":", 2)
        raise UsageError, "no server #{name}; there are: #{all.keys.sort.join(", ")}" unless all.key?(name)

        all[name].new(label, setting)
      end
    end

    attr_reader :label, :setting

    def initialize(label, setting)
      @label = label
      @setting = setting
    end

    # Whether what is started is a Ruby program.
    def ruby? = true

    # @return [Array<String>] what follows `ruby --yjit`, or the whole command of what is no Ruby program.
    def command(site) = raise NotImplementedError, "#{self.class} must say how it is started (#{site.app})"

    # @return [Hash{String => String}] environment variables of its own.
    def environment(_site) = {}

    # @return [URI] where it shows metrics.
    def metrics(site) = URI("http://127.0.0.1:#{site.metrics}/metrics")

    # Called once, before the first round.
    def prepare(_toolchain) = nil

    # The program of a gem, in the bundle.
    def gem_program(name) = ["-S", "bundle", "exec", name]
  end
end
