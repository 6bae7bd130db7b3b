# frozen_string_literal: true

require_relative "../server_process"
require_relative "../../bench/harness/cli"
require_relative "attack"

module Fairlead
  module Hostile
    # Each offence by itself, with many offenders who come again whenever they are gone: what it costs the others, and the
    # server. `rake hostile`.
    class Trial
      APP = File.read(File.expand_path("config.ru", __dir__))
      # Short, so that a trial is.
      DEADLINES = { head_timeout: 2, body_timeout: 2, write_timeout: 2, idle_timeout: 4 }.freeze
      # What comes beside: requests a second, each of which waits 10 ms, for so long, without the offenders and with them;
      # then once all are there.
      RATE = 200
      PATH = "/page"
      SECONDS = 4
      SETTLED = 1
      # Beyond its deadline: what has moved just before it gives it once more, and a refused client that goes on sending is
      # listened to for 2 s.
      LINGERS = 2.5
      # What others may lose: of what all but one of a hundred wait for at most.
      RATIO = 1.2
      # Megabytes that a worker may grow: twice what it keeps for all connections together before it keeps little for each.
      MEMORY = 128
      # A machine that is busy otherwise spoils some runs, and what is too slow has no good one.
      TRIES = 3

      # Seconds within which the offenders come.
      OVER = 2

      LEFT = OFFENCES.find { |offence| offence.name == "connections that are left" }
      Target = Struct.new(:port)
      Result = Struct.new(:name, :opened, :gone, :longest, :oldest, :bound, :alone, :beside, :failed, :memory, keyword_init: true) do
        def ratio = beside / alone

        # @return [Array<String>] what should not have been.
        def faults
          {
            "others have failed" => failed.positive?, "others have waited" => ratio > RATIO,
            "not all are gone in time" => bound && [longest, oldest].max >= bound, "memory has grown" => memory > MEMORY
          }.select { |_, found| found }.keys
        end
      end

      # @param each [Integer] offenders
      # @param left [Integer] connections that are opened and left
      def initialize(each:, left:)
        @each = each
        @left = left
        Hostile.raise_descriptor_limit
      end

      # @yieldparam result [Result] of each try.
      # @return [Array<Result>] the last of each offence: a good one, if there was one.
      def run(offences = OFFENCES)
        offences.map do |offence|
          TRIES.times do |number|
            result = try(offence)
            yield result
            break result if result.faults.empty? || number == TRIES - 1
          end
        end
      end

      private

      def try(offence)
        server = ServerProcess.new(APP, *flags, lint: false)
        server.start.wait_until_ready
        ask(server, 1) # warm
        alone = ask(server)
        before = memory(server)
        bound = bound(offence)
        beside = nil
        outcome = Attack.new(server.port, [offence], each: count(offence), again: offence != LEFT, over: OVER).during do
          sleep SETTLED
          beside = ask(server)
          sleep [bound.to_f - SECONDS - SETTLED, 0].max + SETTLED # whoever is there has had his time
        end[offence.name]
        Result.new(name: offence.name, **outcome.to_h.slice(:opened, :gone, :longest, :oldest), bound:, alone: alone[:p99],
          beside: beside[:p99], failed: beside.values_at(:errors, :non_2xx).sum, memory: memory(server) - before)
      ensure
        server&.finish
      end

      def flags = DEADLINES.flat_map { |name, seconds| ["--#{name.to_s.tr("_", "-")}", seconds.to_s] }

      def bound(offence)
        return unless offence.lasts

        offence.lasts == :at_once ? LINGERS : (2 * DEADLINES.fetch(offence.lasts)) + LINGERS
      end

      # Those that come again at once are a flood otherwise, and who has the fewest processors loses.
      def count(offence)
        return @left if offence == LEFT

        offence.flood || offence.again || offence.lasts == :at_once ? [@each / 20, 1].max : @each
      end

      def ask(server, seconds = SECONDS) = Bench::OpenLoop.new(rate: RATE, path: PATH, patience: 10).run(Target.new(server.port), seconds)

      # @return [Float] the most that the worker has had, in MB
      def memory(server) = File.read("/proc/#{server.worker_pids.first}/status")[/^VmHWM:\s+(\d+)/, 1].to_i / 1024.0

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
