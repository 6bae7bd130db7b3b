# frozen_string_literal: true

require_relative "server"
require_relative "workload"

module Bench
  # Which of a workload's loads a call measures, and which servers.
  class Selection
    # @return [Workload]
    attr_reader :workload
    # @return [Array<Server>] the reference first.
    attr_reader :servers
    # @return [Array<Workload::Load>] each with the time for which it is measured.
    attr_reader :loads

    # @param options [Options]
    # @raise [UsageError] when there is no such load or server, or nothing to sweep.
    def initialize(workload, options)
      @workload = workload
      @options = options
      @servers = choose_servers
      @loads = choose_loads.map { |load| load.with(seconds: options.seconds || load.seconds || workload.seconds) }
    end

    private

    def choose_servers
      labels = @options.sweep ? chosen(@workload.swept) : (@options.ours || ["fairlead"]) + chosen(@workload.peers)
      raise UsageError, "#{@workload.name} has no settings to sweep" if @options.sweep && labels.empty?

      labels.uniq.map { |label| Server.for(label) }
    end

    def choose_loads
      only = @options.only.is_a?(Hash) ? @options.only[@workload.name] : @options.only
      return @workload.loads unless only

      known = @workload.loads.map(&:name)
      unknown = (only - known).first
      raise UsageError, "#{@workload.name} has no load #{unknown}; it has #{known.join(", ")}" if unknown

      @workload.loads.select { |load| only.include?(load.name) }
    end

    # A bare name means all of a workload's settings of that server.
    def chosen(labels)
      return labels unless @options.against

      (@options.against - ["none"]).flat_map do |name|
        found = labels.select { |label| label == name || label.start_with?("#{name}:") }
        name.include?(":") || found.empty? ? [name] : found
      end
    end
  end
end
