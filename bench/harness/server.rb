# frozen_string_literal: true

module Bench
  # What a server is asked to serve: an app, on a port, with some workers.
  Site = Data.define(:app, :port, :workers, :folder) do
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

    # @return [Array<String>] what follows `ruby --yjit`.
    def command(site) = raise NotImplementedError, "#{self.class} must say how it is started (#{site.app})"

    # @return [Hash{String => String}] environment variables of its own.
    def environment(_site) = {}

    # Called once, before the first round.
    def prepare(_toolchain) = nil

    # The program of a gem, in the bundle.
    def gem_program(name) = ["-S", "bundle", "exec", name]
  end
end
