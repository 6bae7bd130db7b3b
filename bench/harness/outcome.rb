# frozen_string_literal: true

require_relative "comparison"
require_relative "progress"
require_relative "table"

module Bench
  # What is said of one load when it has been measured: the table, what was aimed at, and all that speaks against it.
  class Outcome
    # @param load [Workload::Load]
    # @return [Array<String>] what is said of our runs that were repeated, since they missed what is asked of each.
    def self.misses(load, comparison)
      comparison.misses.map do |run|
        missed, control = [run[load.generator.bounded_figure], run[:control]].map { |time| time&.round || "no answer" }
        "#{missed} in a run that was repeated; where nothing stalls: #{control}"
      end
    end

    # What states of ours are compared by, and whether more of it is better.
    STATES = { "requests/s" => [:requests_per_second, true], "p99" => [:p99, false] }.freeze
    private_constant :STATES

    attr_reader :load

    # @param runs [Array<Hash>] of that load.
    # @param aims [Array<Workload::Aim>] of all loads.
    # @param order [Array<String>] the servers' labels, the reference first.
    def initialize(load, runs, aims:, order:)
      @load = load
      @comparison = Comparison.new(runs, order:)
      @aims = aims.select { |aim| aim.load == load.name && order.first == "fairlead" }
    end

    # Whether ours had no error.
    def faultless? = @comparison.faultless?

    def to_s
      ideal = "ideal: #{@load.ideal}" if @load.ideal
      table = Table.new(@comparison, main: @load.generator.main_figure)
      [ideal, table.to_s.chomp, *verdicts, *failures, *misses, *movements, noise].compact.join("\n")
    end

    private

    def verdicts
      @aims.map do |aim|
        reached = aim.test.call(@comparison)
        reached.nil? ? "  ? #{aim.text}: not measured" : "  #{reached ? "✓" : "✗"} #{aim.text}"
      end
    end

    def failures
      @comparison.servers.flat_map do |server|
        @comparison.failures(server).uniq.map { |message| "#{server} failed: #{message}" }
      end
    end

    def misses = Outcome.misses(@load, @comparison).map { |text| "  ! #{text}" }

    # Between states of ours, a difference is told from none by the interval of the ratio.
    def movements
      @comparison.servers.drop(1).grep(/\A(fairlead|ladderless)/).flat_map do |server|
        STATES.filter_map do |title, (figure, more)|
          next unless @comparison.ratio(server, figure)

          movement("#{title}, #{@comparison.reference} ÷ #{server}", @comparison.interval(server, figure), more)
        end
      end
    end

    def movement(title, interval, more)
      return "  ? #{title}: not to be told from fewer than six rounds" unless interval

      low, high = interval
      mark, verdict = if low <= 1 && high >= 1 then ["✓", "no difference"]
                      else (low > 1) == more ? ["✓", "better"] : ["✗", "worse"]
                      end
      format("  %s %s: %.3f–%.3f with 95 %% confidence, %s", mark, title, low, high, verdict)
    end

    def noise
      used = @comparison.servers.filter_map { |server| @comparison.summary(server, :other_cpu)&.maximum }.max
      return unless used && used > Progress::NOISE

      "  ! other processes used up to #{used.round(2)} cores meanwhile: the figures are doubtful"
    end
  end
end
